"""Settings of every check: arguments with which its hypotheses occur."""

from importlib import import_module

import numpy as np

import posenc
from posenc import check
from posenc.check._judge import judge

RNG = np.random.default_rng(30)
YARN = {
    "head_dim": 32,
    "rope_theta": 500000.0,
    "max_position_embeddings": 512,
    "rope_scaling": {
        "rope_type": "yarn",
        "factor": 8.0,
        "original_max_position_embeddings": 64,
        "mscale": 0.8,
        "mscale_all_dim": 0.4,
    },
}
LLAMA3 = {
    "head_dim": 32,
    "rope_theta": 500000.0,
    "max_position_embeddings": 1024,
    "rope_scaling": {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 128,
    },
}
LINEAR = {"head_dim": 32, "rope_theta": 50000.0, "rope_scaling": {"rope_type": "linear", "factor": 4.0}}
DYNAMIC = {
    "head_dim": 32,
    "rope_theta": 50000.0,
    "max_position_embeddings": 128,
    "rope_scaling": {"rope_type": "dynamic", "factor": 4.0},
}
LONGROPE = {
    "head_dim": 32,
    "rope_theta": 50000.0,
    "max_position_embeddings": 1024,
    "original_max_position_embeddings": 128,
    "rope_scaling": {
        "rope_type": "longrope",
        "long_factor": list(np.linspace(2, 30, 16)),
        "short_factor": list(np.linspace(1, 3, 16)),
    },
}
LIKE_DEEPSEEK = {"factor": 40.0, "original_max_position_embeddings": 4096, "mscale_all_dim": 0.8}
DEEPSEEK = {"head_dim": 16, "rope_theta": 1e4, "rope_scaling": {**YARN["rope_scaling"], **LIKE_DEEPSEEK}}
PLAIN = {"head_dim": 32, "rope_theta": 500000.0}
PROPORTIONAL = posenc.rope_frequencies(32, rope_type="proportional", partial_rotary_factor=0.375)
CONFIGS = {"plain": PLAIN, "yarn": YARN, "llama3": LLAMA3, "linear": LINEAR, "dynamic": DYNAMIC, "longrope": LONGROPE}

W16 = posenc.rope_frequencies(16, base=50000.0, rope_type="yarn", factor=4.0, original_max_position_embeddings=64)
ALIBI = posenc.alibi(posenc.alibi_slopes(6))
T5 = posenc.t5(RNG.standard_normal((24, 6)), bidirectional=False, max_distance=64)
T5_BOTH = posenc.t5(RNG.standard_normal((40, 6)), bidirectional=True, max_distance=64)
SWIN = posenc.swin(RNG.standard_normal((7 * 11, 6)), 4, 6)
BEIT = posenc.beit(RNG.standard_normal((7 * 11 + 3, 6)), 4, 6)
FIRE = posenc.fire(*(RNG.standard_normal(shape) for shape in ((8, 1), (8,), (6, 8), (6,))), 0.3, 5.0)
KERPLE = posenc.kerple_log(*RNG.uniform(0.2, 3, (2, 6)))
DENSE = posenc.dense(RNG.standard_normal((6, 12, 12)))
TISA = posenc.tisa(*RNG.standard_normal((3, 6, 4)))
CONTENTS = (
    posenc.shaw(*RNG.standard_normal((2, 9, 16))),
    posenc.relative_key_query(RNG.standard_normal((9, 16))),
    posenc.deberta(*RNG.standard_normal((2, 6, 8, 16))),
    posenc.transformer_xl(*(RNG.standard_normal(shape) for shape in ((6, 9, 16), (6, 16), (6, 16)))),
    posenc.cope(RNG.standard_normal((5, 16))),
)
BUCKETED = posenc.deberta(*RNG.standard_normal((2, 6, 8, 16)), num_buckets=4, max_distance=16)
PARTS = [4, (1, 4, 6), 2, (5, 4, 8, 1.5), 3, (2, 6, 4, 1.5), 2]
SEGMENTS = np.repeat([0, 1, 2], [4, 5, 3])
ROWS = RNG.standard_normal((25, 16))
KEEP = (np.arange(12) < 2) | (np.arange(12) > np.arange(12)[:, None] - 4)
POSITIONS = dict.fromkeys(("q_positions", "k_positions"), np.array([0, 2, 3, 4, 7, 8, 0, 1, 2, 5, 6, 7]))
CAUSAL_MASK = {"causal": True, "align": "end"}

MODULES = ("attention", "biases", "frequencies", "gradient", "learned", "mask", "merge", "positions", "rope")
SETTINGS = {
    **{f"frequencies {name}": (check.frequencies, (config,), {"seq_len": 512}) for name, config in CONFIGS.items()},
    **{f"rope {name}": (check.rope, (config,), {"layout": "half", "seq_len": 512, "inputs": ("q", "k")})
       for name, config in CONFIGS.items()},
    "frequencies dynamic, longer": (check.frequencies, (DYNAMIC,), {"seq_len": 300}),
    "frequencies longrope, trained": (check.frequencies, (LONGROPE,), {"seq_len": 128}),
    "rope interleaved": (check.rope, (PLAIN,), {"layout": "interleaved"}),
    "rope partial": (check.rope, ({**PLAIN, "partial_rotary_factor": 0.5},), {"layout": "half", "dim": 32}),
    "rope quarter": (check.rope, ({**PLAIN, "partial_rotary_factor": 0.25},), {"layout": "half", "dim": 32}),
    "rope sections": (check.rope, (PLAIN,), {"layout": "half", "sections": (4, 6, 6)}),
    "rope sections interleaved": (check.rope, (PLAIN,), {"layout": "half", "sections": (6, 5, 5), "interleaved": True}),
    **{f"rope {axes}": (check.rope, (), {"dim": 32, "layout": "half", "axes": axes})
       for axes in ("concat", "blocks", "alternate")},
    "rope xpos": (check.rope, (PLAIN,), {"layout": "half", "inputs": ("q", "k"), "scale_base": 512}),
    "rope proportional": (check.rope, (PROPORTIONAL,), {"layout": "half"}),
    "sinusoid frequencies": (check.sinusoid, (), {"frequencies": np.pi * 2.0 ** np.arange(10)}),
    "sinusoid": (check.sinusoid, (32,), {"base": 50000.0}),
    "sinusoid half-1": (check.sinusoid, (32,), {"layout": "half", "denominator": "half-1"}),
    "slopes 12": (check.slopes, (12,), {}),
    "slopes 22": (check.slopes, (22,), {}),
    "buckets": (check.buckets, (), {"buckets": 40, "max_distance": 96}),
    "buckets causal": (check.buckets, (), {"buckets": 24, "max_distance": 96, "bidirectional": False}),
    **{f"bias {bias.name}": (check.bias, (bias, 12, 20), {}) for bias in (ALIBI, FIRE, TISA)},
    "bias fire square": (check.bias, (FIRE, 12), {}),
    "bias kerple_log": (check.bias, (KERPLE, 12), {}),
    "bias dense": (check.bias, (DENSE, 12), {}),
    "bias t5": (check.bias, (T5, 40, 90), {}),
    "bias t5 both": (check.bias, (T5_BOTH, 90, 90), {}),
    "bias swin": (check.bias, (SWIN, 24), {}),
    "bias beit": (check.bias, (BEIT, 25), {}),
    "mask": (check.mask, (7, 12), CAUSAL_MASK),
    "mask window": (check.mask, (7, 12), {"window": (3, None), **CAUSAL_MASK}),
    "mask window ahead": (check.mask, (7, 12), {"window": (3, 1), "align": "end"}),
    "mask segments": (check.mask, (12, 12), {"segments": (SEGMENTS, SEGMENTS), "causal": True}),
    "mask padding": (check.mask, (12, 12), {"segments": (np.ones(12), SEGMENTS > 0), "causal": True}),
    "mask chunks": (check.mask, (12, 12), {"segments": (np.arange(12) // 4, np.arange(12) // 4), "causal": True}),
    "mask keep": (check.mask, (12,), {"causal": True, "keep": KEEP}),
    "mask keep padding": (check.mask, (12,), {"causal": True, "keep": np.arange(12) > 2}),
    "mask positions": (check.mask, (12,), {"causal": True, **POSITIONS}),
    "softmax scales": (check.softmax, (), {"scale": [0.2, 0.3, 0.5], "softcap": 2.0, "sink": [0.5, -1.0, 1.0]}),
    "attention positions": (check.attention, (), {"n": 12, "frequencies": W16, "layout": "half", **POSITIONS}),
    "attention positions alibi": (check.attention, (), {"n": 12, "bias": ALIBI, "heads": 6, **POSITIONS}),
    "positions": (check.positions, (PARTS,), {"style": "qwen2_5_vl", "tokens_per_second": 3}),
    "softmax": (check.softmax, (), {"causal": True, "softcap": 2.0, "sink": [0.5, -1.0, 1.0]}),
    "attention": (check.attention, (), {"causal": True, "n": 7, "m": 12, "kv_heads": 2, "window": (4, None)}),
    "attention cap": (check.attention, (), {"softcap": 1.5, "bias": ALIBI, "heads": 6, "n": 9}),
    "attention t5 both": (check.attention, (), {"bias": T5_BOTH, "heads": 6, "n": 20, "m": 40}),
    "attention t5": (check.attention, (), {"scale": 1.0, "bias": T5, "heads": 6, "n": 20, "m": 40, "causal": True}),
    "attention rope": (check.attention, (), {"frequencies": W16, "layout": "half", "causal": True, "n": 7, "m": 12}),
    **{f"attention {bias.name}": (check.attention, (), {"bias": bias, "heads": 6, "n": 12}) for bias in CONTENTS},
    "attention shaw causal": (check.attention, (), {"bias": CONTENTS[0], "heads": 6, "n": 7, "m": 12, "causal": True}),
    "attention shaw short": (check.attention, (), {"bias": CONTENTS[0], "heads": 6, "n": 2, "m": 3}),
    "attention deepseek": (check.attention, (), {"frequencies": DEEPSEEK, "layout": "half", "causal": True}),
    "attention deberta buckets": (check.attention, (), {"bias": BUCKETED, "heads": 6, "n": 12}),
    "merge": (check.merge, (), {}),
    "learned": (check.learned, (ROWS,), {"n": 20, "prefix": 2}),
    "learned half pixels": (check.learned, (ROWS,), {"n": 9, "corners": False}),
    "learned antialias": (check.learned, (ROWS,), {"n": 9, "antialias": True}),
    "learned grid": (check.learned, (ROWS,), {"n": (6, 9), "grid": (4, 6), "prefix": 1}),
    "cache deberta": (check.cache, (), {"bias": CONTENTS[2], "heads": 6}),
    "cache": (check.cache, (), {"frequencies": W16, "layout": "half"}),
    "cache window": (check.cache, (), {"frequencies": W16, "layout": "half", "window": (3, None)}),
    "cache alibi": (check.cache, (), {"bias": ALIBI, "heads": 6, "window": (4, None)}),
    "cache tisa": (check.cache, (), {"bias": TISA, "heads": 6}),
    "cache t5": (check.cache, (), {"bias": T5, "heads": 6, "chunks": (20, 1, 1, 40)}),
}  # fmt: skip


def judged(name, monkeypatch, answer):
    """Run a check whose implementation returns what ``answer(kind, case)`` returns, and return the report."""
    function, arguments, options = SETTINGS[name]

    def replaced(kind, got, case, precision):
        return judge(kind, answer(kind, {**case, "setting": name}), case, precision)

    for module in MODULES:
        monkeypatch.setattr(import_module(f"posenc.check._{module}"), "judge", replaced)
    return function(_echo(function.__name__), *arguments, **options)


def _echo(kind):
    """An implementation whose result is not used; only its shape must be right."""
    return {
        "frequencies": (np.ones(16), 1.0),
        "rope": lambda *x: (x[0], x[1])[: len(x) - 1],
        "sinusoid": lambda p: np.zeros((len(p), 32)),
        "slopes": lambda heads: np.ones(heads),
        "buckets": lambda rel: rel,
        "bias": lambda n, m: np.zeros((6, n, m)),
        "mask": lambda n, m: np.ones((n, m)),
        "positions": lambda first, end: np.zeros((3, end - first)),
        "softmax": lambda q, k: q @ k.swapaxes(-1, -2),
        "attention": lambda q, k, v: q,
        "cache": lambda q, k, v, start: q,
        "learned": lambda p: np.zeros((len(p), 16)),
        "merge": lambda outs, lses: outs[0],
    }[kind]
