"""Stored pictures of the pages: each comes from the code above it and has an alternative text that is computed from the
figure."""

import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
_spec = importlib.util.spec_from_file_location("pictures", ROOT / "docs" / "pictures.py")
pictures = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(pictures)

PAGES = {page.name: page for page in pictures.pages()}
BYTES = 90_000
"""Limit of a picture."""


def words(text):
    return re.sub(r"\s+", " ", text)


def test_pictures_are_current_and_small(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["pictures.py", "--check"])
    assert pictures.main() == 0, capsys.readouterr().out
    for page in PAGES.values():
        for picture in pictures.pictures(page):
            assert not picture._replace(source=picture.source + " ").is_current
            assert picture.file.stat().st_size < BYTES
    monkeypatch.setattr(pictures.Picture, "is_current", False)
    assert pictures.main() == 1
    assert "it was drawn by other code; run python docs/pictures.py" in capsys.readouterr().out


@pytest.mark.parametrize("name", sorted(PAGES.keys() - {pictures.STUDY.name}))
def test_alternative_texts_are_computed(name):
    """The figure that the code draws now has the description that the page has. bridges/tests draws the figure of the
    study, which needs autograd."""
    pytest.importorskip("matplotlib", reason="matplotlib is not installed: no pictures")
    from posenc import plot

    page = PAGES[name]
    for picture, figure in zip(pictures.pictures(page), pictures.figures(page), strict=True):
        titles = [axes.get_title() for axes in figure.axes if axes.get_label() != "<colorbar>"]
        assert all(titles) or figure.get_suptitle(), picture.file.name
        assert all(axes.has_data() for axes in figure.axes), picture.file.name
        assert words(picture.alt) == plot.description(figure), f"run python docs/pictures.py {page.relative_to(ROOT)}"
