"""posenc_bridges.torch.attention of sequences of different lengths in one tensor: cu_seqlens_q and cu_seqlens_k."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import posenc

torch = pytest.importorskip("torch", reason="torch is not installed")
pt = pytest.importorskip("posenc_bridges.torch", reason="ml_dtypes is not installed")

Q_LENGTHS, K_LENGTHS = [5, 0, 70, 1], [7, 3, 70, 4]


def ends(lengths: list[int]) -> Any:
    return torch.tensor([0, *np.cumsum(lengths)], dtype=torch.int32)


def qkv(dtype: Any = torch.float32) -> list[Any]:
    draw = torch.Generator().manual_seed(0)
    shapes = (sum(Q_LENGTHS), 4, 8), (sum(K_LENGTHS), 2, 8), (sum(K_LENGTHS), 2, 6)
    return [torch.randn(*shape, generator=draw).to(dtype).requires_grad_() for shape in shapes]


def apart(tensors: list[Any], **options: Any) -> list[tuple[Any, Any]]:
    """The results of each sequence alone, in its own call."""
    rows = zip(*(one.split(n) for one, n in zip(tensors, (Q_LENGTHS, K_LENGTHS, K_LENGTHS), strict=True)), strict=True)
    return [pt.attention(*(one.transpose(0, 1) for one in row), return_lse=True, **options) for row in rows]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("causal", [False, True])
def test_sequences(dtype: Any, causal: bool) -> None:
    """Each sequence has the bits of its own call, and one gradient goes to a parameter of all."""
    tensors, slopes = qkv(dtype), torch.linspace(0.1, 1, 4, dtype=torch.float64, requires_grad=True)
    options = {"causal": causal, "align": "end", "bias": pt.alibi(slopes), "sink": torch.zeros(4)}
    out, lse = pt.attention(
        *tensors, cu_seqlens_q=ends(Q_LENGTHS), cu_seqlens_k=ends(K_LENGTHS), return_lse=True, **options
    )
    rows = apart(tensors, **options)
    assert torch.equal(out, torch.cat([row.transpose(0, 1) for row, _ in rows]))
    assert out.is_contiguous()
    assert torch.equal(lse, torch.cat([row for _, row in rows], 1))
    assert lse.shape == (4, sum(Q_LENGTHS))
    found = torch.autograd.grad(out.double().square().sum(), [*tensors, slopes])
    expected = torch.autograd.grad(sum(row.double().square().sum() for row, _ in rows), [*tensors, slopes])
    assert all(torch.equal(one, other) for one, other in zip(found[:3], expected[:3], strict=True))
    assert torch.allclose(found[3], expected[3], rtol=1e-12)  # sums of the sequences in another order


def test_no_sequences_and_names() -> None:
    q, k, v = (torch.zeros(0, 4, 8) for _ in "qkv")
    assert pt.attention(q=q, k=k, v=v, cu_seqlens_q=[0]).shape == (0, 4, 8)
    assert pt.attention(q, k, v=v, cu_seqlens_q=np.zeros(3, np.int64)).shape == (0, 4, 8)
    assert "cu_seqlens_q, cu_seqlens_k : integer array" in pt.attention.__doc__
    assert pt.attention.__name__ == posenc.attention.__name__


def test_dropout_differs_from_sequence_to_sequence() -> None:
    """Two equal sequences lose different weights, and torch's generator decides which."""
    q = torch.ones(2, 64, 1, 8).flatten(0, 1)
    v = torch.eye(64).repeat(2, 1)[:, None]

    def once() -> Any:
        torch.manual_seed(3)
        return pt.attention(q, q, v, cu_seqlens_q=[0, 64, 128], dropout=0.5)

    out = once()
    assert torch.equal(out, once())
    assert not torch.equal(out[:64], out[64:])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cu_seqlens_q": None, "cu_seqlens_k": [0, 6]}, "cu_seqlens_q is None; expected an array"),
        ({"cu_seqlens_q": [0, 4]}, r"cu_seqlens_q is \[0, 4\]; expected rising numbers from 0 to 6, the tokens of q"),
        ({"cu_seqlens_q": [0, 4, 3, 6]}, r"cu_seqlens_q is \[0, 4, 3, 6\]; expected rising numbers"),
        ({"cu_seqlens_q": [1, 6]}, r"cu_seqlens_q is \[1, 6\]; expected rising numbers"),
        ({"cu_seqlens_q": [0.0, 6.0]}, r"cu_seqlens_q has shape \(2,\) and dtype torch.float32; expected integers"),
        ({"cu_seqlens_q": []}, r"cu_seqlens_q has shape \(0,\)"),
        ({"cu_seqlens_q": [1j]}, r"cu_seqlens_q has shape \(1,\) and dtype torch.complex64; expected integers"),
        ({"cu_seqlens_q": "06"}, "cu_seqlens_q has type str; expected integers"),
        ({"cu_seqlens_q": [[0], [0, 6]]}, "cu_seqlens_q has type list; expected integers"),
        ({"cu_seqlens_q": torch.ones(2, device="meta")}, "cu_seqlens_q has type Tensor; expected integers"),
        ({"cu_seqlens_k": [0, 2, 6]}, "cu_seqlens_k has 2 sequences; expected 1, as cu_seqlens_q"),
        ({"v": torch.zeros(5, 4, 8)}, "v has 5 tokens; expected 6, as k"),
        ({"q": torch.zeros(1, 6, 4, 8)}, r"q has shape \(1, 6, 4, 8\); expected a tensor \(tokens, heads, width\)"),
        ({"q": np.zeros((6, 4, 8))}, "q has type ndarray; expected a tensor"),
        ({"keep": torch.ones(6, 6, dtype=torch.bool)}, "keep is given; expected None, because cu_seqlens_q is given"),
        ({"seed": 1, "dropout": 0.1}, "seed is given; expected None"),
        ({"position_ids": 1}, "position_ids is unknown; expected q_positions"),
    ],
)
def test_errors(changes: dict[str, Any], message: str) -> None:
    given = dict.fromkeys("qkv", torch.zeros(6, 4, 8)) | {"cu_seqlens_q": [0, 6]} | changes
    with pytest.raises((TypeError, ValueError), match=f"attention: .*{message}"):
        pt.attention(**given)
