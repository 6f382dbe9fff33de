"""The rows of csrc/ops.def, each called as row(function_name, operand=..., parameter=...) -> None.

.ci/core_stub.py writes this file; a test compares them. The module is private and trusts its caller. The binding checks
the memory of the operands: kinds, ranks, lengths, strides, alignment. It does not check what an option or a table
means; the functions of posenc do. So a direct call with wrong parameters may read or write out of bounds, and no call
of a public function may.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[Any]
Integers = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Terms = tuple[tuple[str, dict[str, Numbers | None], Numbers | None, Numbers | None], ...]

def attention_plain(*arguments: object) -> Any: ...
def rope_plain(*arguments: object) -> Any: ...
def isa() -> str: ...
def isas() -> tuple[str, ...]: ...
def set_isa(name: str, /) -> None: ...
def hold_isa() -> None: ...
def release_isa(*exception: object) -> None: ...
def hold_kernels() -> None: ...
def release_kernels(*exception: object) -> None: ...
def threads() -> int: ...
def set_threads(number: int, /) -> None: ...
def table() -> dict[str, str]: ...
def constants() -> dict[str, Any]: ...
def build() -> str: ...
def sinusoid(
    function: str,
    /,
    *,
    positions: Numbers,
    frequencies: Numbers,
    lo: Numbers | None = None,
    out: Numbers,
    sine: float,
    cosine: float,
    step: float,
    sine_scale: float,
    cosine_scale: float,
) -> None: ...
def recurrent(
    function: str,
    /,
    *,
    p0: Numbers,
    weight: Numbers,
    bias: Numbers,
    inputs: Numbers | None = None,
    input_weight: Numbers | None = None,
    out: Numbers,
    gru: float,
    skip: float,
) -> None: ...
def recurrent_vjp(
    function: str,
    /,
    *,
    grad: Numbers,
    path: Numbers,
    weight: Numbers,
    bias: Numbers,
    inputs: Numbers | None = None,
    input_weight: Numbers | None = None,
    dp0: Numbers,
    dweight: Numbers,
    dbias: Numbers,
    dinputs: Numbers | None = None,
    dinput_weight: Numbers | None = None,
    gru: float,
    skip: float,
) -> None: ...
def floater(
    function: str,
    /,
    *,
    p0: Numbers,
    w1: Numbers,
    b1: Numbers,
    w2: Numbers,
    b2: Numbers,
    when: Numbers,
    out: Numbers,
    dt: float,
    method: float,
) -> None: ...
def floater_vjp(
    function: str,
    /,
    *,
    grad: Numbers,
    path: Numbers,
    w1: Numbers,
    b1: Numbers,
    w2: Numbers,
    b2: Numbers,
    when: Numbers,
    dp0: Numbers,
    dw1: Numbers,
    db1: Numbers,
    dw2: Numbers,
    db2: Numbers,
    dt: float,
    method: float,
) -> None: ...
def rotation_table(
    function: str,
    /,
    *,
    positions: Numbers,
    frequencies: Numbers,
    out: Numbers,
    sine_scale: float,
    cosine_scale: float,
) -> None: ...
def rope_positions(
    function: str,
    /,
    *,
    x: Numbers,
    positions: Numbers,
    frequencies: Numbers,
    out: Numbers,
    interleaved: float,
) -> None: ...
def rope(
    function: str,
    /,
    *,
    x: Numbers,
    cos: Numbers,
    sin: Numbers,
    out: Numbers,
    offset: float,
    interleaved: float,
    out_interleaved: float,
    caller_out: float,
) -> None: ...
def convolution(
    function: str,
    /,
    *,
    x: Numbers,
    kernel: Numbers,
    bias: Numbers | None = None,
    out: Numbers,
    top: float,
    left: float,
    padding: float,
    residual: float,
) -> None: ...
def convolution_vjp(
    function: str,
    /,
    *,
    grad: Numbers,
    x: Numbers,
    dkernel: Numbers,
    dbias: Numbers,
    top: float,
    left: float,
    padding: float,
) -> None: ...
def learned(
    function: str,
    /,
    *,
    table: Numbers,
    rows: Integers,
    out: Numbers,
) -> None: ...
def hierarchical(
    function: str,
    /,
    *,
    table: Numbers,
    rows: Integers,
    out: Numbers,
    alpha: float,
) -> None: ...
def embedding_backward(
    function: str,
    /,
    *,
    grad: Numbers,
    order: Integers,
    weight: Numbers | None = None,
    first: Integers,
    last: Integers,
    dtable: Numbers,
) -> None: ...
def interpolate_table(
    function: str,
    /,
    *,
    table: Numbers,
    out: Numbers,
) -> None: ...
def merge(
    function: str,
    /,
    *,
    x: Numbers,
    p: Numbers,
    out: Numbers,
    mode: float,
) -> None: ...
def concat(
    function: str,
    /,
    *,
    x: Numbers,
    p: Numbers,
    out: Numbers,
) -> None: ...
def merge_vjp(
    function: str,
    /,
    *,
    grad: Numbers,
    x: Numbers | None = None,
    dp: Numbers,
) -> None: ...
def complex_order(
    function: str,
    /,
    *,
    amplitude: Numbers,
    cos: Numbers,
    sin: Numbers,
    out: Numbers,
) -> None: ...
def complex_order_vjp(
    function: str,
    /,
    *,
    grad: Numbers,
    amplitude: Numbers,
    cos: Numbers,
    sin: Numbers,
    damplitude: Numbers,
    dangle: Numbers,
) -> None: ...
def digits(
    function: str,
    /,
    *,
    whole: Integers,
    fraction: Numbers | None = None,
    out: Numbers,
    base: float,
) -> None: ...
def from_digits(
    function: str,
    /,
    *,
    digits: Numbers,
    out: Numbers,
    base: float,
) -> None: ...
def positions_from_mask(
    function: str,
    /,
    *,
    keep: Bools,
    out: Integers,
    start: float,
) -> None: ...
def gram(
    function: str,
    /,
    *,
    x: Numbers,
    out: Numbers,
    mode: float,
) -> None: ...
def standardize(
    function: str,
    /,
    *,
    x: Numbers,
    out: Numbers,
) -> None: ...
def alibi(function: str, /, **operands: Numbers | Terms | float | None) -> None: ...
def alibi_vjp(function: str, /, **operands: Numbers | Terms | float | None) -> None: ...
def kerple_log(function: str, /, **operands: Numbers | Terms | float | None) -> None: ...
def kerple_log_vjp(function: str, /, **operands: Numbers | Terms | float | None) -> None: ...
def kerple_power(function: str, /, **operands: Numbers | Terms | float | None) -> None: ...
def kerple_power_vjp(function: str, /, **operands: Numbers | Terms | float | None) -> None: ...
def t5(function: str, /, **operands: Numbers | Terms | float | None) -> None: ...
def t5_vjp(function: str, /, **operands: Numbers | Terms | float | None) -> None: ...
def distance_function(function: str, /, **operands: Numbers | Terms | float | None) -> None: ...
def distance_function_vjp(function: str, /, **operands: Numbers | Terms | float | None) -> None: ...
def tisa(function: str, /, **operands: Numbers | Terms | float | None) -> None: ...
def tisa_vjp(function: str, /, **operands: Numbers | Terms | float | None) -> None: ...
def sandwich(function: str, /, **operands: Numbers | Terms | float | None) -> None: ...
def sandwich_vjp(function: str, /, **operands: Numbers | Terms | float | None) -> None: ...
def toeplitz_matrix(
    function: str,
    /,
    *,
    row: Numbers,
    out: Numbers,
) -> None: ...
def diagonal_sums(
    function: str,
    /,
    *,
    grad: Numbers,
    out: Numbers,
) -> None: ...
def fire(function: str, /, **operands: Numbers | Terms | float | None) -> None: ...
def fire_vjp(function: str, /, **operands: Numbers | Terms | float | None) -> None: ...
def swin(function: str, /, **operands: Numbers | Terms | float | None) -> None: ...
def swin_vjp(function: str, /, **operands: Numbers | Terms | float | None) -> None: ...
def beit(function: str, /, **operands: Numbers | Terms | float | None) -> None: ...
def beit_vjp(function: str, /, **operands: Numbers | Terms | float | None) -> None: ...
def fox(function: str, /, **operands: Numbers | Terms | float | None) -> None: ...
def fox_vjp(function: str, /, **operands: Numbers | Terms | float | None) -> None: ...
def attention(function: str, /, **operands: Numbers | Terms | float | None) -> None: ...
def attention_vjp(function: str, /, **operands: Numbers | Terms | float | None) -> None: ...
def logits(function: str, /, **operands: Numbers | Terms | float | None) -> None: ...
def logits_vjp(function: str, /, **operands: Numbers | Terms | float | None) -> None: ...
def merge_attention(
    function: str,
    /,
    *,
    outs: Numbers,
    lses: Numbers,
    out: Numbers,
    lse: Numbers,
) -> None: ...
