"""The reference manual: ``sphinx-build -W --keep-going -b html docs build/docs-html``."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import posenc

DOCS = Path(__file__).resolve().parent
sys.path[:0] = [str(DOCS), str(DOCS.parent / "examples")]

project, author, release = "posenc", "the posenc developers", posenc.__version__
project_copyright = author
extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.mathjax",
    "sphinx-mathjax-offline",  # a page needs no network to show its equations
    "numpydoc",
    "myst_nb",
    "sphinx.ext.githubpages",  # .nojekyll
    "api",
    "hosted",
]
exclude_patterns = ["**.ipynb_checkpoints"]

html_theme = "furo"
html_baseurl = os.environ.get("POSENC_MANUAL_URL", "")  # set by .github/workflows/pages.yml
html_static_path = ["_static"]
html_css_files = ["wide.css"]
html_extra_path = ["../build/explore-html"]
html_title = f"posenc {release}"

default_role = "py:obj"  # `name` in a docstring is a link where there is such a name
add_module_names = False
autodoc_typehints = "none"  # numpydoc's sections say more
numpydoc_show_class_members = False
numpydoc_validation_checks = {"GL03", "PR02", "PR03", "PR10", "SS01"}

myst_enable_extensions = ["dollarmath", "amsmath"]
myst_heading_anchors = 3
nb_execution_mode = "off"  # the outputs are those of the files, which tests/docs/test_notebooks.py compares

# The interactive page, explore/index.html. It needs ziglang.
subprocess.run(
    [sys.executable, DOCS / "explore/build.py", DOCS.parent / "build/explore-html/explore/index.html"], check=True
)

# Sphinx reads below docs/ only.
for copy in (DOCS / "notebooks").glob("*.ipynb"):
    copy.unlink()
for notebook in (DOCS.parent / "examples").glob("*.ipynb"):
    shutil.copy(notebook, DOCS / "notebooks")
