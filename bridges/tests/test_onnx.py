"""The conformance cases of ONNX's operators `Attention` and `RotaryEmbedding`, as a second oracle.

Each case is compared twice: with its own outputs, which ONNX's reference code computed in the dtype of the case, and
with the outputs of that code for the same inputs in float64. The second comparison is sharp for float16 and bfloat16,
too. posenc leaves heads in the last axis, concatenation with the cache, and lengths of padded keys to its caller, so
`read_arguments` has a line for each. The attribute `softmax_precision` has no counterpart, because posenc's softmax is
in float32 or wider.
"""

from __future__ import annotations

import importlib
from typing import Any, NamedTuple

import numpy as np
import pytest
from agreed import agree as compare

import posenc

onnx = pytest.importorskip("onnx", reason="onnx is not installed")
from onnx.backend.test.case import node as onnx_nodes  # noqa: E402
from onnx.reference.ops.op_attention import _compute_attention  # noqa: E402
from onnx.reference.ops.op_rotary_embedding import rotary_embedding  # noqa: E402

for module in ("attention", "rotaryembedding"):
    importlib.import_module(f"{onnx_nodes.__name__}.{module}")  # adds its cases to the list that the next lines read

NUMBER = {"Attention": 93, "RotaryEmbedding": 8}
"""Number of cases of each operator in onnx 1.23."""
CASES = {
    case.name: case
    for case in onnx_nodes._NodeTestCases
    if len(case.model.graph.node) == 1 and case.model.graph.node[0].op_type in NUMBER  # others are decompositions
}
NAMES = {operator: [n for n, c in CASES.items() if c.model.graph.node[0].op_type == operator] for operator in NUMBER}
UNIT = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 2.0**-24, "float64": 2.0**-53}
"""Unit roundoff of each dtype."""


class Call(NamedTuple):
    """Inputs, attributes and expected outputs of a case, by name."""

    inputs: dict[str, Any]
    attributes: dict[str, Any]
    outputs: dict[str, Any]


class Arguments(NamedTuple):
    """Arguments of `posenc.attention`."""

    q: Any
    k: Any
    v: Any
    scale: float
    softcap: float | None
    mask: dict[str, Any]
    """The options that hide keys, and the bias."""


def read(name: str, source: str) -> Call:
    """Return a case with its own outputs, or in float64 with those of the reference code."""
    node = CASES[name].model.graph.node[0]
    arrays, results = CASES[name].data_sets[0]
    inputs = dict(zip(filter(None, node.input), arrays, strict=True))
    attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute if a.name != "softmax_precision"}
    outputs = dict(zip(filter(None, node.output), results, strict=True))
    if source == "float64":
        inputs = {key: array if array.dtype.kind in "bi" else array.astype(np.float64) for key, array in inputs.items()}
        if node.op_type == "Attention":
            results = _compute_attention(**inputs, **attributes)
            names = ("Y", "present_key", "present_value", "qk_matmul_output")
        else:
            results, names = (rotary_embedding(**inputs, **attributes),), ("output",)
        outputs = {key: array for key, array in zip(names, results, strict=True) if key in outputs}
    return Call(inputs, attributes, outputs)


@pytest.fixture(params=["expected", "float64"])
def source(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def check(operator: str, ours: dict[str, Any], call: Call, allowed: dict[str, Any]) -> None:
    assert list(ours) == list(call.outputs)
    for output, expected in call.outputs.items():
        assert ours[output].dtype == expected.dtype
        compare(operator, ours[output], expected, allowed[output])


def test_number_of_cases() -> None:
    """The two tests below run, and pass, for every case of the two operators."""
    assert {operator: len(names) for operator, names in NAMES.items()} == NUMBER


@pytest.mark.parametrize("name", NAMES["Attention"])
def test_attention(name: str, source: str) -> None:
    call = read(name, source)
    arguments = read_arguments(call)
    q, k, v, scale, softcap, mask = arguments
    result = posenc.attention(q, k, v, scale=scale, softcap=softcap, **mask)
    ours = {"Y": result if call.inputs["Q"].ndim == 4 else merge_heads(result)}
    if "present_key" in call.outputs:
        ours |= {"present_key": k, "present_value": v}
    mode = call.attributes.get("qk_matmul_output_mode", 0)
    if "qk_matmul_output" in call.outputs:
        ours["qk_matmul_output"] = weights(arguments) if mode == 3 else logits(arguments, mode)
    check("attention", ours, call, tolerance(call, arguments, mode))


def read_arguments(call: Call) -> Arguments:
    """Return the arguments of `posenc.attention` for a case.

    The N queries begin at the position of the first new key. That is neither ``align="start"`` nor ``"end"``, so they
    are passed as positions.
    """
    inputs, attributes = dict(call.inputs), dict(call.attributes)
    q, k, v = (inputs.pop(letter) for letter in "QKV")
    if q.ndim == 3:
        heads, kv_heads = attributes.pop("q_num_heads"), attributes.pop("kv_num_heads")
        q, k, v = split_heads(q, heads), split_heads(k, kv_heads), split_heads(v, kv_heads)
    first: Any = 0
    if "past_key" in inputs:
        first = inputs["past_key"].shape[-2]
        k = np.concatenate([inputs.pop("past_key"), k], axis=-2)
        v = np.concatenate([inputs.pop("past_value"), v], axis=-2)
    n, m = q.shape[-2], k.shape[-2]
    keep, bias = np.True_, []
    if "nonpad_kv_seqlen" in inputs:
        lengths = inputs.pop("nonpad_kv_seqlen")[:, None]
        first = lengths - n
        keep = np.arange(m) < lengths[:, None, None]
    if "attn_mask" in inputs:
        mask = inputs.pop("attn_mask")
        is_bool = mask.dtype == np.bool_
        short = [(0, 0)] * (mask.ndim - 1) + [(0, m - mask.shape[-1])]
        mask = np.pad(mask, short, constant_values=False if is_bool else -np.inf)
        if is_bool:
            keep = keep & mask
        else:
            bias = [posenc.dense(mask)]
    window = (attributes.pop("left_window_size", -1), attributes.pop("right_window_size", -1))
    options = {
        "bias": bias,
        "keep": keep,
        "causal": bool(attributes.pop("is_causal", False)),
        "window": tuple(None if limit == -1 else limit for limit in window),
        "q_positions": first + np.arange(n),
        "k_positions": np.arange(m),
    }
    scale, softcap = attributes.pop("scale", q.shape[-1] ** -0.5), attributes.pop("softcap", 0) or None
    attributes.pop("qk_matmul_output_mode", None)
    assert not inputs, f"unknown inputs {list(inputs)}"
    assert not attributes, f"unknown attributes {list(attributes)}"
    return Arguments(q, k, v, scale, softcap, options)


def split_heads(x: Any, heads: int) -> Any:
    """(B, N, H D) to (B, H, N, D)"""
    return x.reshape(*x.shape[:2], heads, -1).swapaxes(1, 2)


def merge_heads(x: Any) -> Any:
    """(B, H, N, D) to (B, N, H D)"""
    return x.swapaxes(1, 2).reshape(x.shape[0], x.shape[2], -1)


def weights(arguments: Arguments) -> Any:
    """Return the softmax: attention with the identity as values."""
    q, k, _, scale, softcap, mask = arguments
    identity = np.broadcast_to(np.eye(k.shape[-2], dtype=k.dtype), (*k.shape[:-1], k.shape[-2]))
    return posenc.attention(q, k, identity, scale=scale, softcap=softcap, **mask)


def logits(arguments: Arguments, mode: int) -> Any:
    """Return the logits before the cap (mode 0), after it (1), or with the masks (2).

    The lse over a single key is its logit.
    """
    q, k, _, scale, softcap, mask = arguments
    columns = []
    for j in range(k.shape[-2]):
        key = k[..., j : j + 1, :]
        options = {"scale": scale, "softcap": softcap if mode else None}
        if mode == 2:
            bias = [posenc.dense(one.arrays.array[..., j : j + 1]) for one in mask["bias"]]
            keep = mask["keep"][..., j : j + 1] if mask["keep"].ndim else mask["keep"]
            options |= {**mask, "bias": bias, "keep": keep, "k_positions": mask["k_positions"][j : j + 1]}
        columns.append(posenc.attention(q, key, key, return_lse=True, **options)[1])
    return np.stack(columns, axis=-1).astype(q.dtype)


def tolerance(call: Call, arguments: Arguments, mode: int) -> dict[str, Any]:
    """Return the allowed differences, the sum of the bounds of both sides.

    Let u be the unit roundoff, S the largest ``scale |q| |k|`` (Euclidean norms), L the largest size of a logit, and M
    the number of keys. A logit has D + 5 roundings of the scale, products and sums of size S, because the reference
    code multiplies q and k by the root of the scale. The cap (tanh to 4 ulp) and lse have at most 11, and the sum with
    the mask one of size L. The error of a logit is at most ``u ((D + 16) S + L)``.

    A weight has the error of two logits, the rounding of their difference (at most 2 L) in its numerator and in the
    sum, two exponentials to 4 ulp, M additions and a division: a relative error of ``2 (error of a logit) + u (4 L + M
    + 18)``. M products and sums with values follow. The values are not negative, so this is a relative error, too.
    """
    q, k, v, scale, _, mask = arguments
    assert (v >= 0).all()
    given = UNIT[q.dtype.name]
    size = scale * norm(q) * norm(k)
    finite = [abs(one.arrays.array[np.isfinite(one.arrays.array)].astype(np.float64)) for one in mask["bias"]]
    largest = size + max((float(array.max()) for array in finite), default=0.0)

    def of_logit(u: float) -> float:
        return u * ((q.shape[-1] + 16) * size + largest)

    def of_output(u: float) -> float:
        return float(np.exp(2 * of_logit(u) + u * (4 * largest + 2 * k.shape[-2] + 18)))

    ours = min(given, UNIT["float32"])  # the unit roundoff of our arithmetic; the result is rounded to `given`
    relative = of_output(given) * of_output(ours) * (1 + given) - 1
    allowed = {"Y": relative * call.outputs["Y"].astype(np.float64), "present_key": 0.0, "present_value": 0.0}
    if "qk_matmul_output" in call.outputs:
        expected = call.outputs["qk_matmul_output"].astype(np.float64)
        allowed["qk_matmul_output"] = relative * expected if mode == 3 else of_logit(given) + of_logit(ours)
    return allowed


def norm(x: Any) -> float:
    """Return the largest Euclidean norm of a vector along the last axis."""
    return float(np.linalg.norm(x.astype(np.float64), axis=-1).max())


@pytest.mark.parametrize("name", NAMES["RotaryEmbedding"])
def test_rotary_embedding(name: str, source: str) -> None:
    """Both sides round two products and their sum: at most 2 u (|cos| |x| + |sin| |x|) each."""
    call = read(name, source)
    inputs, attributes = dict(call.inputs), dict(call.attributes)
    x, cos, sin = (inputs.pop(argument) for argument in ("input", "cos_cache", "sin_cache"))
    layout = "interleaved" if attributes.pop("interleaved", 0) else "half"
    rotary_dim = attributes.pop("rotary_embedding_dim", 0) or None
    heads = attributes.pop("num_heads", 0)
    rows = inputs.pop("position_ids", None)
    table = (cos, sin) if rows is None else (cos[rows], sin[rows])
    assert not inputs, f"unknown inputs {list(inputs)}"
    assert not attributes, f"unknown attributes {list(attributes)}"
    by_head = x if x.ndim == 4 else split_heads(x, heads)
    cos, sin = (array[:, None] for array in table)
    result = posenc.rope_by_table(by_head, cos, sin, layout=layout, rotary_dim=rotary_dim)
    largest = float(abs(x).max()) * sum(float(abs(array).max()) for array in table)
    ours = {"output": result if x.ndim == 4 else merge_heads(result)}
    check("rope", ours, call, {"output": 4 * UNIT[x.dtype.name] * largest})
