"""Rows of ops.def, public functions, their docstrings and their Cases are complete."""

import inspect
import re
import runpy
from pathlib import Path
from typing import get_args, get_type_hints

import numpy as np
import pytest
from cases import BF16, CASES, array_paths, terms

import posenc
from posenc import _core

FUNCTIONS = sorted(name for name in posenc.__all__ if inspect.isfunction(getattr(posenc, name)))
COMPUTING = [f for f in FUNCTIONS if getattr(posenc, f).__module__ != "posenc.runtime" and f != "quantize"]
"""Controls of the run time have test_runtime.py, and int8 codes of numbers test_quantized.py."""
WITHOUT_GRADIENT = {
    # documented: their transpose is in their docstring
    "rerotate", "convert_layout", "merge_attention", "integrate",
    # take no array to differentiate, or return integers, positions or fixed numbers
    "frequencies", "rope_frequencies", "rope_from_config", "alibi_slopes", "rope_table", "rope_matrix", "shift_matrix",
    "t5_bucket", "digits", "from_digits", "positions_from_mask", "logn_scale", "rerope_positions",
    "self_extend_positions", "nezha", "xl_table", "axial_frequencies", "floor_log_scale", "attention_weights",
    # fixed numbers by distance: its vjp is an empty tuple
    "sandwich",
}  # fmt: skip


def returns_bias(name):
    return "Bias" in str(inspect.signature(getattr(posenc, name)).return_annotation)


def base_of(name):
    return name.removesuffix("_vjp")


def test_every_callable_row_is_reached_by_a_case(monkeypatch):
    """Rows are counted when forward calls, calls with out= and gradients run them."""
    reached = set()
    gives = {row: signature.split("->")[-1].split(";")[0].strip() for row, signature in _core.table().items()}
    callable_rows = {row for row in gives if hasattr(_core, row) and gives[row]}

    def counted(row, call):
        return lambda *name, **operands: (reached.add(row), call(*name, **operands))[1]

    for row in callable_rows:
        monkeypatch.setattr(_core, row, counted(row, getattr(_core, row)))
    for case in CASES:
        arguments = case.arguments(max(3, case.least))
        results = case.call(arguments)
        if case.takes_out:
            case.call(arguments, out=np.empty(results[0].shape, results[0].dtype))
        if case.gradients:
            case.vjp(tuple(np.ones(np.shape(r)) for r in results), arguments)
    assert callable_rows - reached == set(), "rows of csrc/ops.def without a Case in tests/cases"


def test_every_term_is_in_a_case_of_attention():
    rows = {row for row in _core.table() if not hasattr(_core, row)}
    used = {function for case in CASES for function, _ in terms(case.arguments(max(3, case.least)))}
    assert rows - used == set(), "POSITION or CONTENT rows of csrc/ops.def that no Case of attention uses"


def test_every_public_function_has_a_case():
    tested = {case.function for case in CASES if case.module == "posenc"}
    assert {base_of(name) for name in COMPUTING} - tested == set(), "public functions without a Case in tests/cases"
    assert tested <= set(FUNCTIONS)


def test_every_vjp_is_tested():
    tested = {case.function for case in CASES if case.gradients}
    vjps = {base_of(name) for name in FUNCTIONS if name.endswith("_vjp")}
    assert vjps - tested == set(), "vjps that no Case checks: fill in its `gradients`"
    biases = {name for name in COMPUTING if returns_bias(name)}
    assert biases - tested - WITHOUT_GRADIENT == set(), "biases whose vjp no Case checks"


@pytest.mark.parametrize("name", COMPUTING)
def test_every_differentiable_function_has_a_vjp(name):
    if name.endswith("_vjp"):
        assert hasattr(posenc, base_of(name))
    else:
        assert name in WITHOUT_GRADIENT or returns_bias(name) or f"{name}_vjp" in FUNCTIONS


@pytest.mark.parametrize("case", [c for c in CASES if c.gradients], ids=lambda case: case.name)
def test_every_gradient_is_in_its_case(case):
    """Every field of the NamedTuple of a vjp is checked by a Case. `frequencies` may be left out if the Case has
    none."""
    arguments = case.arguments(3)
    fields = set(case.vjp(tuple(np.ones(np.shape(r)) for r in case.call(arguments)), arguments))
    given = {field for field in fields if field in arguments or field in case.gradients}
    assert {field for field in given - set(case.gradients) if array_paths(arguments[field])} == set()
    assert set(case.gradients) <= fields


@pytest.mark.parametrize("name", COMPUTING)
def test_docstring(name):
    """A docstring has numpydoc sections Parameters, Returns, Raises and Examples, and Notes or a reference if a paper
    defines the function."""
    text = inspect.getdoc(getattr(posenc, name))
    sections = set(re.findall(r"^(\w[\w ]+)\n-{3,}$", text, re.MULTILINE))
    assert {"Parameters", "Returns", "Raises", "Examples"} <= sections
    assert ">>> " in text
    summary = text.split("\n\n")[0]
    assert summary.endswith((".", "``", ":")) or "``" in summary


@pytest.mark.parametrize("name", COMPUTING)
def test_docstring_names_every_parameter(name):
    """The docstring of a gradient may refer to the function."""
    function = getattr(posenc, name)
    documented = inspect.getdoc(function)
    for parameter in inspect.signature(function).parameters.values():
        here = re.search(rf"^(\w+, )*\**{parameter.name}(, \w+)* : |^(\w+, )*\**{parameter.name}(, \w+)*$",
                         documented, re.MULTILINE)  # fmt: skip
        refers = name.endswith("_vjp") and f"`{base_of(name)}`" in documented
        assert here or refers, parameter.name


def test_bfloat16_is_tested():
    assert BF16 is not None, "install ml_dtypes: without it no bfloat16 row of the suite runs"


@pytest.mark.parametrize("row", [row for row in _core.table() if hasattr(_core, row)])
def test_core_rows_document_themselves_and_count_arguments(row):
    assert getattr(_core, row).__doc__ == _core.table()[row]
    for wrong in ((1,), ("f", 1)):
        with pytest.raises(TypeError, match="takes at most a function name"):
            getattr(_core, row)(*wrong)
    with pytest.raises(TypeError, match=r"^f: \w+ is missing; expected "):
        getattr(_core, row)("f")
    with pytest.raises(TypeError, match=r"^f: none_such is unknown; expected "):
        getattr(_core, row)("f", none_such=1)


def test_stub_of_the_binding_is_current():
    """`python .ci/core_stub.py > posenc/_core.pyi` writes it."""
    root = Path(__file__).parents[2]
    assert runpy.run_path(str(root / ".ci/core_stub.py"))["stub"]() == (root / "posenc/_core.pyi").read_text("utf-8")


def options(constant):
    """The names of a list of csrc/constants.def in the order of their codes: PADDING_ZERO is "zero"."""
    listed = _core.constants()[constant]
    return tuple(listed) if isinstance(listed, dict) else tuple(o.split("_", 1)[1].lower() for o in listed.split(", "))


@pytest.mark.parametrize(
    ("function", "argument", "constant", "more"),
    [
        ("conv_position", "padding", "PADDINGS", ()), ("conv_position_2d", "padding", "PADDINGS", ()),
        ("merge", "mode", "MERGE_MODES", ("replace", "concat")),
        ("merge_vjp", "mode", "MERGE_MODES", ("replace", "concat")),
        ("floater", "method", "TABLEAUS", ()), ("integrate", "method", "TABLEAUS", ()),
    ],
)  # fmt: skip
def test_types_of_options_are_the_lists_of_c(function, argument, constant, more):
    """A type checker knows the options from a Literal, the kernels from constants.def."""
    annotation = get_type_hints(getattr(posenc, function))[argument]
    assert set(get_args(annotation)) == {*options(constant), *more}
