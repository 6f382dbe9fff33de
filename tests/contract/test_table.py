"""Rows of ops.def, public functions, their docstrings and their Cases are complete."""

import inspect
import re
from typing import get_type_hints

import numpy as np
import pytest
from cases import BF16, CASES, array_paths, terms

import posenc
from posenc import _core

FUNCTIONS = sorted(name for name in posenc.__all__ if inspect.isfunction(getattr(posenc, name)))
COMPUTING = [
    f for f in FUNCTIONS if getattr(posenc, f).__module__ != "posenc.runtime" and f not in ("quantize", "layers")
]
"""Controls of the run time have test_runtime.py, int8 codes of numbers test_quantized.py, and layers test_layers.py."""
MODULES = ["analysis", "check", "plot", "reference", "runtime", "typing"]
WITHOUT_GRADIENT = {
    # documented: their transpose is in their docstring
    "rerotate", "convert_layout", "merge_attention", "integrate",
    # take no array to differentiate, or return integers, positions or fixed numbers
    "sinusoidal_frequencies", "rope_frequencies", "rope_from_config", "alibi_slopes", "rope_table", "rope_matrix",
    "shift_matrix",
    "t5_bucket", "digits", "from_digits", "positions_from_mask", "logn_scale", "rerope_positions",
    "self_extend_positions", "nezha_table", "xl_table", "axial_frequencies", "mrope_frequencies", "floor_log_scale",
    "attention_weights", "grid_positions", "mrope_positions",
    # fixed numbers by distance: its vjp is an empty tuple
    "sandwich",
}  # fmt: skip


def base_of(name):
    return name.removesuffix("_vjp")


def test_every_row_is_reached_by_a_case(monkeypatch):
    """Callable rows when forward calls, calls with out= and gradients run them; others as operators of attention."""
    reached = {function for case in CASES for function, _ in terms(case.arguments(max(3, case.least)))}
    reached.add("distance_function_vjp")  # which attention_vjp alone runs
    gives = {row: signature.split("->")[-1].split(";")[0].strip() for row, signature in _core.TABLE.items()}

    def counted(row, call):
        return lambda *name, **operands: (reached.add(row), call(*name, **operands))[1]

    for row in gives:
        if hasattr(_core, row):
            monkeypatch.setattr(_core, row, counted(row, getattr(_core, row)))
    for case in CASES:
        arguments = case.arguments(max(3, case.least))
        results = case.call(arguments)
        if case.takes_out:
            case.call(arguments, out=np.empty(results[0].shape, results[0].dtype))
        if case.gradients:
            case.vjp(tuple(np.ones(np.shape(r)) for r in results), arguments)
    without = {row for row, results in gives.items() if hasattr(_core, row) and not results}
    assert set(gives) - without - reached == set(), "rows of csrc/ops.def without a Case in tests/cases"


def test_every_public_function_has_a_case():
    tested = {case.function for case in CASES if case.module == "posenc"}
    assert {base_of(name) for name in COMPUTING} - tested == set(), "public functions without a Case in tests/cases"
    assert tested <= set(FUNCTIONS)
    assert BF16 is not None, "install ml_dtypes: without it no bfloat16 row of the suite runs"


def test_positions_that_may_be_counted_have_a_start():
    functions = {name: inspect.signature(getattr(posenc, name)).parameters for name in FUNCTIONS}
    without = {name for name, taken in functions.items() if "positions" in taken and "start" not in taken}
    assert without == {"rope_nd", "rope_nd_vjp"}  # positions (A, N), which no int means


def test_every_differentiable_function_has_a_tested_vjp():
    tested = {case.function for case in CASES if case.gradients}
    vjps = {base_of(name) for name in FUNCTIONS if name.endswith("_vjp")}
    biases = {name for name in COMPUTING if "Bias" in str(inspect.signature(getattr(posenc, name)).return_annotation)}
    assert (vjps | biases) - tested - WITHOUT_GRADIENT == set(), "vjps that no Case checks: fill in its `gradients`"
    assert {base_of(name) for name in COMPUTING} == vjps | biases | WITHOUT_GRADIENT


def test_every_gradient_is_in_its_case():
    """Every field of the NamedTuple of a vjp is checked by a Case. `frequencies` may be left out if the Case has
    none."""
    for case in CASES:
        if case.gradients:
            arguments = case.arguments(3)
            fields = set(case.vjp(tuple(np.ones(np.shape(r)) for r in case.call(arguments)), arguments))
            missing = {
                field for field in fields & set(arguments) - set(case.gradients) if array_paths(arguments[field])
            }
            assert missing == set(), case.name
            assert set(case.gradients) <= fields, case.name


@pytest.mark.parametrize("name", COMPUTING)
def test_docstring(name):
    """A docstring has the sections of numpydoc and names every parameter; that of a gradient may refer to the
    function."""
    function = getattr(posenc, name)
    text = inspect.getdoc(function)
    assert {"Parameters", "Returns", "Raises", "Examples"} <= set(re.findall(r"^(\w+)\n-{3,}$", text, re.MULTILINE))
    assert ">>> " in text
    assert "`" in text.split("\n\n")[1] or name == "convert_layout", "an equation, or a function that has it"
    for parameter in inspect.signature(function).parameters:
        here = re.search(rf"^(\w+, )*\**{parameter}(, \w+)*( : .*)?$", text, re.MULTILINE)
        assert here or (name.endswith("_vjp") and f"`{base_of(name)}`" in text), parameter


@pytest.mark.parametrize("row", [row for row in _core.TABLE if hasattr(_core, row)])
def test_core_rows_document_themselves_and_count_arguments(row):
    assert getattr(_core, row).__doc__ == _core.TABLE[row]
    for wrong in ((1,), ("f", 1)):
        with pytest.raises(TypeError, match="takes at most a function name"):
            getattr(_core, row)(*wrong)
    with pytest.raises(TypeError, match=r"^f: \w+ is missing; expected "):
        getattr(_core, row)("f")
    with pytest.raises(TypeError, match=r"^f: none_such is unknown; expected "):
        getattr(_core, row)("f", none_such=1)


@pytest.mark.parametrize(
    ("function", "argument", "row"),
    [
        ("conv_position", "padding", "convolution"),
        ("conv_position_2d", "padding", "convolution_vjp"),
        ("floater", "method", "floater"),
        ("integrate", "method", "floater_vjp"),
        ("rope", "layout", "rope_positions"),
    ],
)
def test_types_of_options_are_the_words_of_c(function, argument, row):
    """A type checker knows the options from a Literal, C from the table."""
    words = re.search(rf"\b{argument}: ([\w|]+)", _core.TABLE[row])
    literals = re.findall(r"'(\w+)'", str(get_type_hints(getattr(posenc, function))[argument]))
    assert set(literals) == set(words[1].split("|"))


# ---- names ----


def test_dir_shows_the_public_names_and_the_documented_modules_alone():
    assert dir(posenc) == sorted([*posenc.__all__, *MODULES, "__version__"])
    assert len(set(posenc.__all__)) == len(posenc.__all__)
    assert [name for name in posenc.__all__ if inspect.ismodule(getattr(posenc, name))] == []
    for module in (posenc.analysis, posenc.plot, posenc.check):
        assert dir(module) == sorted(module.__all__)


@pytest.mark.parametrize("bridge", ["autograd", "dask", "jax", "torch", "transformers"])
def test_the_name_of_a_bridge_leads_to_its_distribution(bridge):
    with pytest.raises(AttributeError, match=rf"'{bridge}'; expected posenc_bridges\.{bridge}, ") as caught:
        getattr(posenc, bridge)
    assert caught.value.name == bridge
