"""The names of posenc: those that are listed, those that are shown, and the way to names of other libraries."""

import inspect
import pydoc
import re

import pytest

import posenc
from posenc._neighbours import NEIGHBOURS

MODULES = ["analysis", "check", "plot", "reference"]


def test_dir_shows_the_public_names_and_the_documented_modules_alone():
    assert dir(posenc) == sorted([*posenc.__all__, *MODULES, "__version__"])


def test_every_listed_name_is_an_object_of_its_room():
    assert len(set(posenc.__all__)) == len(posenc.__all__)
    assert [name for name in posenc.__all__ if inspect.ismodule(getattr(posenc, name))] == []


def test_help_maps_every_public_name_by_topic():
    """Gradients are named by the rule that the text states: a function's name with _vjp, and its NamedTuple."""
    words = set(re.findall(r"\w+", posenc.__doc__))
    gradients = {name for name in posenc.__all__ if name.endswith(("_vjp", "Gradient"))}
    assert set(posenc.__all__) - gradients - words == set()
    assert set(MODULES) - words == set()


def test_help_is_printed_without_quoted_annotations():
    assert "positions: npt.ArrayLike" in pydoc.render_doc(posenc.rope, renderer=pydoc.plaintext)


@pytest.mark.parametrize("name", NEIGHBOURS)
def test_a_name_of_another_library_leads_to_ours(name):
    with pytest.raises(AttributeError, match=f"^module 'posenc' has no attribute '{name}'; expected ") as caught:
        getattr(posenc, name)
    assert caught.value.name == name
    ours = re.findall(r"(?<![.\w])(\w+)\(", NEIGHBOURS[name]) + re.findall(r"posenc\.(\w+)", NEIGHBOURS[name])
    assert "numpy.testing" in NEIGHBOURS[name] or "posenc_bridges" in NEIGHBOURS[name] or ours
    assert set(ours) <= set(dir(posenc))


def test_submodules_show_what_they_list():
    assert set(posenc.analysis.__all__) <= set(dir(posenc.analysis))
    assert posenc.reference.__all__
