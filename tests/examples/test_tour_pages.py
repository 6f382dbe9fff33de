"""Pictures, index.html and slides.html of the tour: captions are computed, and pages hold every picture."""

import math
import re

import numpy as np
import pytest

import posenc
from posenc import __main__ as table
from posenc.__main__ import WIDTH

pytest.importorskip("matplotlib", reason="matplotlib is not installed: no pictures")

from tour import pages, pictures
from tour.pictures import PICTURES, SHOWN, TESTED, TRAINED
from tour.text import of_user

TEXT = of_user("a text", "Der alte Fährmann setzte den Wanderer über den Fluss, und der Wanderer dankte ihm dafür.")


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return tmp_path_factory.mktemp("tour")


@pytest.fixture(scope="module")
def made(directory):
    """The pictures by name; they and the pages are in the directory."""
    drawn = pictures.draw(TEXT, directory)
    pages.write_index(directory, TEXT, drawn, "the table of effects")
    pages.write_slides(directory, TEXT, drawn)
    return {make.__name__: picture for make, picture in zip(PICTURES, drawn, strict=True)}


def test_captions_say_what_is_shown(made):
    def has(name, *numbers):
        caption = made[name].caption
        assert all(re.search(rf"(?<![\d.]){re.escape(n)}(?![\d]|\.\d)", caption) for n in numbers), (caption, numbers)

    def change(name):
        return f"{table.change_by_swap(pictures.schemes()[name], *TEXT.drawn):.2f}"

    assert "When Fährmann and Wanderer change places" in made["order"].caption
    assert "The and mat" in pictures.order(of_user("another", "The cat sat on a mat.")).caption
    has("order", "0", *map(change, ("sinusoidal", "rope", "alibi")))
    has("order_causal", "0", *map(change, (table.CAUSAL_MASK, "fox", "cope")))
    has("sinusoid", "6.3", f"{2 * math.pi * 10000 ** (63 / 64):,.0f}")
    has("sinusoid", f"{sum(2 * math.pi * 10000 ** (t / 64) > SHOWN - 1 for t in range(64))} of the 64")
    means = [np.cos(SHOWN * np.power(base, -np.arange(256) / 256)).mean() for base in (10000.0, 1000.0)]
    has("decay", *(f"{mean:.2f}" for mean in means))
    has("rotations", f"{np.cos(SHOWN * posenc.sinusoidal_frequencies(WIDTH)).mean():.2f}")
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


def test_pages_show_every_picture_and_slides_need_no_other_file(directory, made):
    index, slides = ((directory / name).read_text(encoding="utf-8") for name in ("index.html", "slides.html"))
    files = [picture.file for picture in made.values()]
    assert re.findall(r'src="(.+?)"', index) == files
    assert {file.name for file in directory.iterdir()} == {"index.html", "slides.html", *files}
    assert slides.count('src="data:image/png;base64,') == len(PICTURES)
    assert all(html.count("alt=") == len(PICTURES) for html in (index, slides))
    assert not re.search(r"https?:|<link|url\(|@import", slides)
