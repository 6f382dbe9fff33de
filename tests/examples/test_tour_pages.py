"""Pictures, index.html and slides.html of the tour: captions are computed, and labels legible."""

import math
import re
from html.parser import HTMLParser

import numpy as np
import pytest

import posenc
from posenc import __main__ as table
from posenc.__main__ import WIDTH

pytest.importorskip("matplotlib", reason="matplotlib is not installed: no pictures")
from matplotlib.text import Text

from tour import pages, pictures
from tour.pictures import PICTURES, SHOWN, TESTED, TRAINED
from tour.text import of_user

TEXT = of_user("a text", "Der alte Fährmann setzte den Wanderer über den Fluss, und der Wanderer dankte ihm dafür.")


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    out = tmp_path_factory.mktemp("tour")
    drawn = pictures.draw(TEXT, out)
    pages.write_index(out, TEXT, drawn, "the table of effects")
    pages.write_slides(out, TEXT, drawn)
    return out


@pytest.fixture(scope="module")
def made():
    return {make.__name__: make(TEXT) for make in PICTURES}


def test_pictures_fit_on_a_slide(made):
    """They are wide, no label is below 8 points, and words stand upright, in reading order."""
    for name, picture in made.items():
        width, height = picture.figure.get_size_inches() * pictures.DPI
        assert height < width <= 2200, name
        picture.figure.draw_without_rendering()
        found = [label for label in picture.figure.findobj(Text) if label.get_text() and label.get_visible()]
        assert min(label.get_fontsize() for label in found) >= 8, name
        words = {label for label in found if label.get_text().strip() in TEXT.words}
        assert all(label.get_rotation() == 0 for label in words), name
        assert {label.get_text().strip() for label in words} >= set(TEXT.drawn.words) or not name.startswith("order")


def test_captions_say_what_is_shown(made):
    def has(name, *numbers):
        caption = made[name].caption
        assert all(re.search(rf"(?<![\d.]){re.escape(n)}(?![\d]|\.\d)", caption) for n in numbers), (caption, numbers)

    def change(name):
        return f"{table.change_by_swap(pictures.schemes()[name], *TEXT.drawn):.2f}"

    assert "When Fährmann and Wanderer change places" in made["order"].caption
    has("order", "0", *map(change, ("sinusoidal", "rope", "alibi")))
    has("order_causal", "0", *map(change, (table.CAUSAL_MASK, "fox", "cope")))
    has("sinusoid", "6.3", f"{2 * math.pi * 10000 ** (63 / 64):,.0f}")
    has("sinusoid", f"{sum(2 * math.pi * 10000 ** (t / 64) > SHOWN - 1 for t in range(64))} of the 64")
    means = [np.cos(SHOWN * np.power(base, -np.arange(256) / 256)).mean() for base in (10000.0, 1000.0)]
    has("decay", *(f"{mean:.2f}" for mean in means))
    has("rotations", f"{np.cos(SHOWN * posenc.frequencies(WIDTH)).mean():.2f}")
    has("biases", "32", "0.25")
    has("matrices", f"{0.5 * (len(TEXT.words[:16]) - 1):.1f}")
    cells = made["extrapolation"].figure.axes[0].images[0].get_array()
    distances = np.arange(TRAINED, TESTED)
    turning = posenc.rope_frequencies(WIDTH).inv_freq
    slow = turning * (TRAINED - 1) < 2 * np.pi
    angles = distances * turning[:, None] % (2 * np.pi)
    trained = np.where(slow, turning * (TRAINED - 1), 2 * np.pi)
    has("extrapolation", f"{slow.sum()} of the 32", f"{(angles > trained[:, None]).mean():.0%}")
    assert (cells[:, :TRAINED] == 0).all()
    yarn = posenc.rope_frequencies(WIDTH, rope_type="yarn", factor=4, original_max_position_embeddings=TRAINED).inv_freq
    has("rope_bands", f"{np.isclose(yarn, turning / 4).sum()} of 32", f"leaves {(yarn == turning).sum()} as")


def test_captions_follow_the_text(made):
    other = of_user("another", "The cat sat on a mat.")
    assert pictures.order(other).caption != made["order"].caption
    assert "The and mat" in pictures.order(other).caption
    assert pictures.matrices(other).caption != made["matrices"].caption


def test_swapped_maps_share_scales_and_hide_masked_cells(made):
    """Cells are grey that a mask hides before and after the swap; the panels of a row share one scale."""
    for name in ("order", "order_causal"):
        panels = pictures.panels(made[name].figure)
        for row in (panels[:4], panels[4:]):
            assert len({axes.images[0].get_clim() for axes in row}) == 1
        assert np.ptp(panels[4].images[0].get_array()) < table.ROUNDING  # without positions nothing changes
    words, a, b = TEXT.drawn
    hidden = ~np.tri(len(words), dtype=bool)
    back = np.arange(len(words))
    back[[a, b]] = b, a
    for before, after in zip(panels[1:4], panels[5:8], strict=True):
        assert np.array_equal(np.ma.getmaskarray(before.images[0].get_array()), hidden)
        assert np.array_equal(np.ma.getmaskarray(after.images[0].get_array()), hidden & hidden[np.ix_(back, back)])
        assert before.get_facecolor()[:3] == (0.8, 0.8, 0.8)
    mask = pictures.schemes()[table.CAUSAL_MASK]
    assert np.allclose(np.nansum(pictures.attention_weights(mask, words), -1), 1, rtol=0, atol=1e-6)


@pytest.mark.filterwarnings("default:Glyph")
def test_a_missing_glyph_is_a_warning(tmp_path, monkeypatch):
    """Chinese fonts are added if they are installed; without one matplotlib names the character."""
    monkeypatch.setattr(pictures, "PICTURES", (pictures.order,))
    monkeypatch.setattr(pictures, "fonts", lambda: ["DejaVu Sans"])
    with pytest.warns(UserWarning, match="Glyph .* missing from font"):
        pictures.draw(of_user("a file", "我爱中国"), tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["order.png"]


class Parts(HTMLParser):
    """Images, headings and the nesting of a page."""

    def __init__(self, html):
        super().__init__()
        self.images, self.headings, self.counts, self.open = [], [], {}, []
        self.feed(html)

    def handle_starttag(self, tag, attributes):
        self.counts[tag] = self.counts.get(tag, 0) + 1
        if tag == "img":
            self.images.append(dict(attributes))
        elif tag not in ("meta", "html"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert tag == "html" or self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] in ("h1", "h2"):
            self.headings.append(data)


def test_index_is_in_reading_order(directory, made):
    page = Parts((directory / "index.html").read_text(encoding="utf-8"))
    assert [image["src"] for image in page.images] == [picture.file for picture in made.values()]
    assert page.headings[1:-1] == [picture.title for picture in made.values()]
    assert all(len(image["alt"]) > 20 for image in page.images)
    files = {file.name for file in directory.iterdir()}
    assert files == {"index.html", "slides.html", *(picture.file for picture in made.values())}


def test_slides_need_no_other_file(directory, made):
    html = (directory / "slides.html").read_text(encoding="utf-8")
    page = Parts(html)
    assert page.counts["section"] == len(PICTURES) + 1
    assert page.counts["aside"] == len(PICTURES)
    assert page.headings[1:] == [picture.title for picture in made.values()]
    assert all(image["src"].startswith("data:image/png;base64,") and image["alt"] for image in page.images)
    assert not re.search(r"https?:|<link|url\(|@import", html)
    assert len(html) < 5e6
