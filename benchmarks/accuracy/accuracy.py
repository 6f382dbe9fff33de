"""Print the errors of sines and cosines of position * frequency: of posenc, NumPy, torch and transformers.

The reference is mpmath. Frequencies are 10000**(-2k/128), k < 64, and an error is the largest over all of them: in
float32 ulps of the true value for positions below 2**31, absolute beyond. The positions "near zeros" are denominators
of the continued fraction of w / (pi/2). At these the angle is closer to a multiple of pi/2 than at any other position
of that size.

More lines count the entries that differ between instruction sets, and print the errors of rotated half precision.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import tools  # noqa: F401  # isort: skip

import numpy as np
from tools.measure import Report, main, peer

import posenc

D = 128
Tables = tuple[np.ndarray, np.ndarray]  # sines and cosines, (positions, D / 2)


def run(report: Report) -> None:
    mp = peer("mpmath")
    if not mp:
        return
    mp.mp.prec = 220
    exact = [mp.mpf(10000) ** (mp.mpf(-2 * k) / D) for k in range(D // 2)]
    rounded = [mp.mpf(float(w)) for w in exact]  # rope takes float64 frequencies as exact
    formulas = all_formulas()
    rng = np.random.default_rng(0)
    sets = {
        "0 .. 2**31, sampled": np.concatenate([np.arange(64), rng.integers(0, 2**31, 1200), 2**31 - 1 - np.arange(40)]),
        "0 .. 131072, sampled": np.concatenate([rng.integers(0, 2**17, 600), [2**17]]),
        "near zeros of sin and cos": near_zeros(mp, exact + rounded),
        "2**40": 2**40 + rng.integers(0, 2**20, 300),
        "2**53": 2**53 - rng.integers(0, 2**30, 300),
    }
    print(f"{'':>28}" + "".join(f"{name:>22}" for name in formulas))
    for what, positions in sets.items():
        beyond = positions.max() >= 2**32
        truths = {id(w): truth(mp, positions, w) for w in (exact, rounded)}
        worst = []
        for formula, of_rounded in formulas.values():
            sine, cosine = truths[id(rounded if of_rounded else exact)]
            worst.append(
                max(error(ours, true, beyond) for ours, true in zip(formula(positions), (sine, cosine), strict=True))
            )
        print(f"{what + (' (abs)' if beyond else ' (ulp)'):>28}" + "".join(f"{value:22.3g}" for value in worst))
        for name, value in zip(formulas, worst, strict=True):
            report.rows.append(
                {"work": f"{name}: {what}", "value": value, "unit": "absolute" if beyond else "float32 ulp"}
            )
    wide_tables(report, mp, exact, sets)
    instruction_sets(report)
    print(
        f"goals: sinusoidal and rope_table <= 1 ulp below 2**31, <= {2.0**-24:.3g} beyond, float64 <= 4e-16 below 2**31"
    )
    half_precision(report)


def wide_tables(report: Report, mp: Any, exact: list[Any], sets: dict[str, np.ndarray]) -> None:
    """Absolute errors in float64. The reference is rounded to float64, which adds half an ulp, 5.6e-17."""
    for what in ("0 .. 2**31, sampled", "near zeros of sin and cos", "2**53"):
        positions = sets[what]
        table = posenc.sinusoidal(positions, D, layout="half", dtype=np.float64)
        ours = np.split(table, 2, axis=1)
        angle = positions[:, None] * frequencies()
        numpy = (np.sin(angle), np.cos(angle))
        true = truth(mp, positions, exact)
        errors = [
            max(float(np.abs(a - b).max()) for a, b in zip(tables, true, strict=True)) for tables in (ours, numpy)
        ]
        print(f"{'float64, ' + what:>34}: posenc.sinusoidal {errors[0]:.3g}, NumPy {errors[1]:.3g} absolute")
        report.rows.append({"work": f"float64 sinusoidal: {what}", "value": errors[0], "unit": "absolute"})


def instruction_sets(report: Report) -> None:
    """Count the float32 entries that differ between base, which has no fused products, and each other set."""
    for isa in posenc.runtime.isas()[1:]:
        rng = np.random.default_rng(0)
        first, other = np.empty((2, 2048, 1024), np.float32)
        differing, worst, calls = 0, 0.0, 1000
        for call in range(calls):
            where = rng.integers(-(2**31) + 1, 2**31, 2048) if call % 2 else rng.integers(0, 2**30) + np.arange(2048)
            base = rng.uniform(100, 1e6)
            for name, out in (("base", first), (isa, other)):
                with posenc.runtime.use_isa(name):
                    posenc.sinusoidal(where, 1024, base=base, out=out)
            different = first != other
            if different.any():
                apart = np.abs(first[different].astype(np.float64) - other[different])
                differing += int(different.sum())
                worst = max(worst, float((apart / np.spacing(np.abs(first[different]))).max()))
        figure = differing / calls / first.size * 1e9
        print(
            f"base and {isa}: {differing} of {calls * first.size:.2g} float32 entries differ, by {worst:g} ulp at most"
        )
        report.rows.append({"work": f"base and {isa}", "value": figure, "unit": "differing entries of 10**9"})


def half_precision(report: Report) -> None:
    """Print the errors of rotated bfloat16 and float16, in ulps of the pair's norm, at positions up to 4096."""
    n, rng = 4096, np.random.default_rng(2)
    wide = rng.standard_normal((n, D))
    torch, llama, ml_dtypes = peer("torch"), peer("transformers.models.llama.modeling_llama"), peer("ml_dtypes")
    w = posenc.rope_frequencies(D)
    kinds: dict[str, tuple[Any, int]] = {"float16": (np.float16, 10)}
    if ml_dtypes:
        kinds["bfloat16"] = (ml_dtypes.bfloat16, 7)
    for name, (dtype, bits) in kinds.items():
        x = wide.astype(dtype)
        exact = posenc.rope(x.astype(np.float64), n, w, layout="half")
        norm = np.hypot(*np.split(exact, 2, axis=1))
        ulp = np.tile(np.exp2(np.floor(np.log2(norm)) - bits), 2)
        results = {"posenc.rope": posenc.rope(x, n, w, layout="half").astype(np.float64)}
        if torch and llama:
            q = torch.from_numpy(x.astype(np.float32)).to(getattr(torch, name))[None, None]
            module = llama.LlamaRotaryEmbedding(llama.LlamaConfig(hidden_size=D, num_attention_heads=1))
            rotated = llama.apply_rotary_pos_emb(q, q, *module(q, torch.arange(n)[None]))[0]
            results["transformers LLaMA"] = rotated[0, 0].double().numpy()
        errors = {who: float((np.abs(has - exact) / ulp).max()) for who, has in results.items()}
        print(f"{name}, ulps of the pair's norm: " + ", ".join(f"{who} {value:.3f}" for who, value in errors.items()))
        for who, value in errors.items():
            report.rows.append({"work": f"{who}: rope in {name}", "value": value, "unit": "ulp of the pair"})
    print("goal: half precision <= 0.51 ulp")


def frequencies() -> np.ndarray:
    return 10000.0 ** (-np.arange(0, D, 2) / D)


def all_formulas() -> dict[str, tuple[Callable[[np.ndarray], Tables], bool]]:
    """Functions (positions -> sines, cosines) by name, each with a flag: True if its frequencies are float64."""

    def ours(positions: np.ndarray) -> Tables:
        sine, cosine = np.split(posenc.sinusoidal(positions, D, layout="half"), 2, axis=1)
        return sine, cosine

    def ours_rotary(positions: np.ndarray) -> Tables:
        cosine, sine = posenc.rope_table(positions, posenc.rope_frequencies(D), dtype=np.float32)
        return sine, cosine

    def numpy64(positions: np.ndarray) -> Tables:
        angle = positions[:, None] * frequencies()
        return np.sin(angle).astype(np.float32), np.cos(angle).astype(np.float32)

    formulas: dict[str, tuple[Callable[[np.ndarray], Tables], bool]] = {
        "posenc.sinusoidal": (ours, False),
        "posenc.rope_table": (ours_rotary, True),
        "NumPy float64, cast": (numpy64, False),
    }
    torch = peer("torch")
    if torch:

        def torch32(positions: np.ndarray) -> Tables:
            inverse = torch.exp(torch.arange(0, D, 2) * (-np.log(10000.0) / D))
            angle = torch.from_numpy(positions).float()[:, None] * inverse
            return angle.sin().numpy(), angle.cos().numpy()

        formulas["torch float32 formula"] = (torch32, False)
    llama = peer("transformers.models.llama.modeling_llama")
    if torch and llama:
        module = llama.LlamaRotaryEmbedding(llama.LlamaConfig(hidden_size=D, num_attention_heads=1))

        def transformers(positions: np.ndarray) -> Tables:
            cosine, sine = module(torch.zeros(1), torch.from_numpy(positions)[None])
            return sine[0, :, : D // 2].numpy(), cosine[0, :, : D // 2].numpy()

        formulas["transformers LLaMA"] = (transformers, False)
    return formulas


def truth(mp: Any, positions: np.ndarray, w: list[Any]) -> Tables:
    """Sines and cosines with 66 digits, rounded to float64."""
    shape = (len(positions), len(w))
    sine, cosine = np.empty(shape), np.empty(shape)
    for i, p in enumerate(positions.tolist()):
        for k, frequency in enumerate(w):
            c, s = mp.cos_sin(p * frequency)
            sine[i, k], cosine[i, k] = float(s), float(c)
    return sine, cosine


def error(has: np.ndarray, true: np.ndarray, absolute: bool) -> float:
    """The largest error, absolute or in float32 ulps of the true value."""
    difference = np.abs(has.astype(np.float64) - true)
    if absolute:
        return float(difference.max())
    return float((difference / np.spacing(np.abs(true).astype(np.float32)).astype(np.float64)).max())


def near_zeros(mp: Any, frequencies: list[Any]) -> np.ndarray:
    """Positions below 2**31 whose angle is near a multiple of pi/2: denominators of convergents, and twice those."""
    found = set()
    for w in frequencies:
        rest, before, now = w / (mp.pi / 2), 1, 0  # denominators of the convergents
        for _ in range(40):
            whole = int(mp.floor(rest))
            before, now = now, whole * now + before
            if now >= 2**31:
                break
            found.update(p for p in (now, 2 * now) if p < 2**31)
            rest = rest - whole
            if rest < mp.mpf(2) ** -150:
                break
            rest = 1 / rest
    return np.array(sorted(found - {0}), np.int64)


if __name__ == "__main__":
    main(__doc__, run)
