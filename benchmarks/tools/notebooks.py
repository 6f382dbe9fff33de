#!/usr/bin/env python3
"""Execute the notebooks of examples/ and keep small outputs, so that the repository's viewer shows their pictures.

    python benchmarks/tools/notebooks.py             execute every notebook whose outputs are not current
    python benchmarks/tools/notebooks.py FILE...     execute these
    python benchmarks/tools/notebooks.py --check     execute nothing; fail if the outputs of one are not current

Outputs are current if the metadata of the notebook have the hash of its code. The text of a picture, which
`posenc.plot.description` computes, becomes its alternative text, in the metadata of its output for Jupyter and of its
cell for the manual. Executing needs `pip install -e
".[docs]"`, and transformers.ipynb also `".[transformers]"`; checking needs nothing but Python.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import io
import json
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "examples").rglob("*.ipynb"))
DPI = 96
"""Of a screen: a label of 10 points has 10 points."""
COLORS = 128
"""Colours of a picture; a palette of them makes its file a third as large."""
SECONDS = 900
"""Time limit of a cell."""
LOCAL = re.compile(r"/(?:home|root|tmp|Users|work|usr|opt|mnt)/|site-packages|[A-Z]:\\")
"""Paths of a machine, which no output may have."""


def hash_of_sources(notebook: dict[str, Any]) -> str:
    """Return the hash of the sources of all code cells."""
    cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    return hashlib.sha256(json.dumps(cells).encode()).hexdigest()


def is_current(notebook: dict[str, Any]) -> bool:
    kept = notebook["metadata"].get("posenc", {}).get("sources")
    return bool(kept == hash_of_sources(notebook))


def with_palette(png: str) -> str:
    """Return a picture, base64, with at most `COLORS` colours."""
    from PIL import Image

    picture = Image.open(io.BytesIO(base64.b64decode(png))).convert("RGB")
    small = io.BytesIO()
    few = picture.quantize(
        COLORS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE
    )  # keeps rare colours, of scales
    few.save(small, "png", optimize=True)
    return base64.b64encode(small.getvalue()).decode()


def lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def kept(output: dict[str, Any]) -> dict[str, Any] | None:
    """Return the part of an output that is committed: printed text, pictures and results, without warnings."""
    kind = output["output_type"]
    if kind == "stream":
        text = "".join(output["text"])
        return {"name": "stdout", "output_type": kind, "text": lines(text)} if output["name"] == "stdout" else None
    data, metadata = output["data"], {}
    found: dict[str, Any] = {}
    if "image/png" in data:
        found["image/png"] = with_palette(data["image/png"])
        metadata = {"image/png": {"alt": "".join(data["text/plain"])}}
    if "text/plain" in data:
        found["text/plain"] = lines("".join(data["text/plain"]))
    of_result = {"execution_count": output["execution_count"]} if kind == "execute_result" else {}
    return {"data": found, **of_result, "metadata": metadata, "output_type": kind}


def alternative_text(cell: dict[str, Any]) -> str:
    """Return the text of the pictures of a cell; empty if it shows none."""
    texts = [output["metadata"]["image/png"]["alt"] for output in cell["outputs"] if output.get("metadata")]
    return " ".join(texts)


def joined(outputs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Join printed text that the kernel sent in pieces."""
    whole: list[dict[str, Any]] = []
    for output in outputs:
        if whole and output["output_type"] == whole[-1]["output_type"] == "stream":
            whole[-1]["text"] = lines("".join(whole[-1]["text"] + output["text"]))
        else:
            whole.append(output)
    return whole


def execute(path: Path) -> None:
    """Execute a notebook in its own directory, as a user does, and write it with its outputs."""
    import nbformat
    from nbclient import NotebookClient

    text = path.read_text(encoding="utf-8")
    notebook, run = json.loads(text), nbformat.reads(text, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        settings = Path(folder, "matplotlibrc")
        settings.write_text(f"figure.dpi: {DPI}\n", encoding="utf-8")
        os.environ["MATPLOTLIBRC"] = str(settings)
        resources = {"metadata": {"path": str(path.resolve().parent)}}
        NotebookClient(run, timeout=SECONDS, resources=resources, record_timing=False).execute()
    for cell, executed in zip(notebook["cells"], run.cells, strict=True):
        if cell["cell_type"] == "code":
            outputs = [found for output in executed.outputs if (found := kept(output)) is not None]
            cell["outputs"], cell["execution_count"] = joined(outputs), executed.execution_count
            alt = alternative_text(cell)
            cell["metadata"] = {"mystnb": {"image": {"alt": alt}}} if alt else {}
    notebook["metadata"]["posenc"] = {"sources": hash_of_sources(notebook)}
    text = json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"
    if local := LOCAL.search(re.sub(r'"image/png": "[^"]*"', "", text)):
        raise ValueError(f"{path.name}: an output has a path of this machine, {local[0]}")
    path.write_text(text, encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("notebooks", nargs="*", type=Path)
    parser.add_argument("--check", action="store_true", help="only compare the hashes")
    options = parser.parse_args()
    paths = options.notebooks or NOTEBOOKS
    stale = [path for path in paths if not is_current(json.loads(path.read_text(encoding="utf-8")))]
    if options.check:
        for path in stale:
            print(f"{path}: its outputs are not those of its cells; run python benchmarks/tools/notebooks.py {path}")
        return 1 if stale else 0
    for path in options.notebooks or stale:
        execute(path)
        print(f"{path.name}: {path.stat().st_size >> 10} KiB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
