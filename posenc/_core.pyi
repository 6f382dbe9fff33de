"""The rows of csrc/ops.def, each called as row(function_name, operand=..., parameter=...) -> its results.

.ci/core_stub.py writes this file; a test compares them. The binding reads what NumPy reads, converts it to the dtypes
of the row, checks ranks, lengths and numbers, and allocates results that are not passed. What an option or a table
means, the functions of posenc check.
"""

from collections.abc import Iterator
from typing import Any, overload

import numpy as np
import numpy.typing as npt

Numbers = npt.ArrayLike

class Arrays(np.ndarray[Any, np.dtype[Any]]):  # only for type checkers: one array, or a tuple of several
    def __iter__(self) -> Iterator[npt.NDArray[Any]]: ...

@overload
def read(row: str, /, **operands: Any) -> Arrays: ...
@overload
def read(function: str, row: str, /, **operands: Any) -> Arrays: ...
def set_helpers(reader: object, shown: object, caster: object, /) -> None: ...
def isa() -> str: ...
def isas() -> tuple[str, ...]: ...
def set_isa(name: str, /) -> None: ...
def begin_rehearsal() -> None: ...
def end_rehearsal() -> None: ...
def threads() -> int: ...
def set_threads(number: int, /) -> None: ...
def table() -> dict[str, str]: ...
def constants() -> dict[str, Any]: ...
def build() -> str: ...
def sinusoid(
    function: str = "",
    /,
    *,
    positions: Numbers,
    frequencies: Numbers,
    sine: float,
    cosine: float,
    step: float,
    sine_scale: float,
    cosine_scale: float,
    lo: Any = None,
    out: Any = None,
    dtype: Any = None,
    **settings: Any,
) -> npt.NDArray[Any]: ...
def recurrent(
    function: str = "",
    /,
    *,
    p0: Numbers,
    weight: Numbers,
    bias: Numbers,
    gru: float,
    skip: float,
    inputs: Any = None,
    input_weight: Any = None,
    out: Any = None,
    dtype: Any = None,
    **settings: Any,
) -> npt.NDArray[Any]: ...
def recurrent_vjp(
    function: str = "",
    /,
    *,
    grad: Numbers,
    path: Numbers,
    weight: Numbers,
    bias: Numbers,
    gru: float,
    skip: float,
    inputs: Any = None,
    input_weight: Any = None,
    dp0: Any = None,
    dweight: Any = None,
    dbias: Any = None,
    dinputs: Any = None,
    dinput_weight: Any = None,
    dtype: Any = None,
    **settings: Any,
) -> Any: ...
def floater(
    function: str = "",
    /,
    *,
    p0: Numbers,
    w1: Numbers,
    b1: Numbers,
    w2: Numbers,
    b2: Numbers,
    when: Numbers,
    dt: float,
    method: str,
    out: Any = None,
    dtype: Any = None,
    **settings: Any,
) -> npt.NDArray[Any]: ...
def floater_vjp(
    function: str = "",
    /,
    *,
    grad: Numbers,
    path: Numbers,
    w1: Numbers,
    b1: Numbers,
    w2: Numbers,
    b2: Numbers,
    when: Numbers,
    dt: float,
    method: str,
    dp0: Any = None,
    dw1: Any = None,
    db1: Any = None,
    dw2: Any = None,
    db2: Any = None,
    dtype: Any = None,
    **settings: Any,
) -> Any: ...
def rotation_table(
    function: str = "",
    /,
    *,
    positions: Numbers,
    frequencies: Numbers,
    sine_scale: float,
    cosine_scale: float,
    out: Any = None,
    dtype: Any = None,
    **settings: Any,
) -> npt.NDArray[Any]: ...
def rope_positions(
    function: str = "",
    /,
    *,
    x: Numbers,
    positions: Numbers,
    frequencies: Numbers,
    layout: str,
    out: Any = None,
    rotary_offset: float | None = None,
    out_layout: str | None = None,
    inverse: float | None = None,
    attention_factor: float | None = None,
    rotary_dim: float | None = None,
    dtype: Any = None,
    **settings: Any,
) -> npt.NDArray[Any]: ...
def rope(
    function: str = "",
    /,
    *,
    x: Numbers,
    cos: Numbers,
    sin: Numbers,
    offset: float,
    interleaved: float,
    out_interleaved: float,
    out: Any = None,
    caller_out: float | None = None,
    dtype: Any = None,
    **settings: Any,
) -> npt.NDArray[Any]: ...
def convolution(
    function: str = "",
    /,
    *,
    x: Numbers,
    kernel: Numbers,
    top: float,
    left: float,
    padding: str,
    residual: float,
    bias: Any = None,
    out: Any = None,
    dtype: Any = None,
    **settings: Any,
) -> npt.NDArray[Any]: ...
def convolution_vjp(
    function: str = "",
    /,
    *,
    grad: Numbers,
    x: Numbers,
    top: float,
    left: float,
    padding: str,
    dkernel: Any = None,
    dbias: Any = None,
    dtype: Any = None,
    **settings: Any,
) -> Any: ...
def learned(
    function: str = "",
    /,
    *,
    table: Numbers,
    positions: Numbers,
    out: Any = None,
    dtype: Any = None,
    **settings: Any,
) -> npt.NDArray[Any]: ...
def hierarchical(
    function: str = "",
    /,
    *,
    table: Numbers,
    positions: Numbers,
    alpha: float,
    out: Any = None,
    dtype: Any = None,
    **settings: Any,
) -> npt.NDArray[Any]: ...
def weighted_rows(
    function: str = "",
    /,
    *,
    x: Numbers,
    order: Numbers,
    first: Numbers,
    last: Numbers,
    weight: Any = None,
    out: Any = None,
    dtype: Any = None,
    **settings: Any,
) -> npt.NDArray[Any]: ...
def merge(
    function: str = "",
    /,
    *,
    x: Numbers,
    p: Numbers,
    mode: str,
    out: Any = None,
    dtype: Any = None,
    **settings: Any,
) -> npt.NDArray[Any]: ...
def concat(
    function: str = "",
    /,
    *,
    x: Numbers,
    p: Numbers,
    out: Any = None,
    dtype: Any = None,
    **settings: Any,
) -> npt.NDArray[Any]: ...
def merge_vjp(
    function: str = "",
    /,
    *,
    grad: Numbers,
    x: Any = None,
    dp: Any = None,
    dtype: Any = None,
    **settings: Any,
) -> npt.NDArray[Any]: ...
def complex_order(
    function: str = "",
    /,
    *,
    amplitude: Numbers,
    cos: Numbers,
    sin: Numbers,
    out: Any = None,
    dtype: Any = None,
    **settings: Any,
) -> npt.NDArray[Any]: ...
def complex_order_vjp(
    function: str = "",
    /,
    *,
    amplitude: Numbers,
    grad: Numbers,
    cos: Numbers,
    sin: Numbers,
    damplitude: Any = None,
    dangle: Any = None,
    dtype: Any = None,
    **settings: Any,
) -> Any: ...
def digits(
    function: str = "",
    /,
    *,
    whole: Numbers,
    base: float,
    fraction: Any = None,
    out: Any = None,
    dtype: Any = None,
    **settings: Any,
) -> npt.NDArray[Any]: ...
def from_digits(
    function: str = "",
    /,
    *,
    digits: Numbers,
    base: float,
    out: Any = None,
    dtype: Any = None,
    **settings: Any,
) -> npt.NDArray[Any]: ...
def positions_from_mask(
    function: str = "",
    /,
    *,
    keep: Numbers,
    start: float,
    out: Any = None,
    dtype: Any = None,
    **settings: Any,
) -> npt.NDArray[Any]: ...
def alibi(function: str = "", /, **operands: Any) -> Any: ...
def alibi_vjp(function: str = "", /, **operands: Any) -> Any: ...
def kerple_log(function: str = "", /, **operands: Any) -> Any: ...
def kerple_log_vjp(function: str = "", /, **operands: Any) -> Any: ...
def kerple_power(function: str = "", /, **operands: Any) -> Any: ...
def kerple_power_vjp(function: str = "", /, **operands: Any) -> Any: ...
def t5(function: str = "", /, **operands: Any) -> Any: ...
def t5_vjp(function: str = "", /, **operands: Any) -> Any: ...
def distance_function(function: str = "", /, **operands: Any) -> Any: ...
def distance_function_vjp(function: str = "", /, **operands: Any) -> Any: ...
def tisa(function: str = "", /, **operands: Any) -> Any: ...
def tisa_vjp(function: str = "", /, **operands: Any) -> Any: ...
def sandwich(function: str = "", /, **operands: Any) -> Any: ...
def sandwich_vjp(function: str = "", /, **operands: Any) -> Any: ...
def toeplitz_matrix(
    function: str = "",
    /,
    *,
    row: Numbers,
    out: Any = None,
    dtype: Any = None,
    **settings: Any,
) -> npt.NDArray[Any]: ...
def diagonal_sums(
    function: str = "",
    /,
    *,
    grad: Numbers,
    out: Any = None,
    dtype: Any = None,
    **settings: Any,
) -> npt.NDArray[Any]: ...
def fire(function: str = "", /, **operands: Any) -> Any: ...
def fire_vjp(function: str = "", /, **operands: Any) -> Any: ...
def swin(function: str = "", /, **operands: Any) -> Any: ...
def swin_vjp(function: str = "", /, **operands: Any) -> Any: ...
def beit(function: str = "", /, **operands: Any) -> Any: ...
def beit_vjp(function: str = "", /, **operands: Any) -> Any: ...
def fox(function: str = "", /, **operands: Any) -> Any: ...
def fox_vjp(function: str = "", /, **operands: Any) -> Any: ...
def attention(function: str = "", /, **operands: Any) -> Any: ...
def attention_vjp(function: str = "", /, **operands: Any) -> Any: ...
def logits(function: str = "", /, **operands: Any) -> Any: ...
def logits_vjp(function: str = "", /, **operands: Any) -> Any: ...
def merge_attention(
    function: str = "",
    /,
    *,
    outs: Numbers,
    lses: Numbers,
    out: Any = None,
    lse: Any = None,
    dtype: Any = None,
    **settings: Any,
) -> Any: ...
