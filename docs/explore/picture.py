"""Photograph one figure of the page for README.md and docs/guides/explore.md.

    python docs/explore/picture.py [FILE]          by default build/explore/index.html, which build.py makes

It writes docs/explore/picture.png. It needs playwright, pillow and a chromium in PATH. Browsers and fonts differ, so no
test compares the picture with the page: run the program after a change of the figure.
"""

from __future__ import annotations

import io
import shutil
import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

PICTURE = Path(__file__).with_name("picture.png")
STATE = ""
FIGURE = 'figure[data-figure="reach"]'


def main() -> None:
    default = Path(__file__).resolve().parent.parent.parent / "build/explore/index.html"
    page = Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else default
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if chromium is None:
        raise SystemExit("docs/explore/picture.py: there is no chromium in PATH")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        tab = browser.new_page(viewport={"width": 1000, "height": 1200}, color_scheme="light")
        tab.goto(page.as_uri() + STATE)
        tab.wait_for_function("window.explore && explore.firstPicture > 0", timeout=60_000)
        figure = tab.locator(FIGURE)
        figure.scroll_into_view_if_needed()
        tab.wait_for_timeout(1000)  # the figure is drawn when it comes into view
        png = figure.screenshot()
        browser.close()
    Image.open(io.BytesIO(png)).convert("RGB").quantize(64, dither=Image.Dither.NONE).save(PICTURE, optimize=True)
    print(f"{PICTURE.name}: {PICTURE.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
