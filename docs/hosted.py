"""Files of a hosted manual: sitemap.xml and 404.html.

Both need the address, ``html_baseurl``. Without an address, none is made.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from sphinx.application import Sphinx

MISSING = """<!DOCTYPE html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<meta name="color-scheme" content="light dark">
<title>Not found</title>
<body style="font: 1.1em/1.5 sans-serif; margin: 15vh auto; max-width: 30em; padding: 0 1em">
<h1>This page does not exist</h1>
<p>The <a href="{0}index.html">front page</a> has a gallery of the manual.
<a href="{0}search.html">Search</a> finds a function by its name.</p>
"""


def write_files(app: Sphinx, exception: Exception | None) -> None:
    """Write both files after the pages."""
    address = app.config.html_baseurl
    if exception or not address:
        return
    pages = sorted(app.env.found_docs)
    places = "".join(f"<url><loc>{escape(f'{address}{page}.html')}</loc></url>\n" for page in pages)
    namespace = "http://www.sitemaps.org/schemas/sitemap/0.9"
    sitemap = f'<?xml version="1.0" encoding="utf-8"?>\n<urlset xmlns="{namespace}">\n{places}</urlset>\n'
    out = Path(app.outdir)
    (out / "sitemap.xml").write_text(sitemap, "utf-8")
    (out / "404.html").write_text(MISSING.format(escape(address, {'"': "&quot;"})), "utf-8")


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("build-finished", write_files)
    return {"parallel_read_safe": True}
