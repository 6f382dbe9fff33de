"""Add a scheme to the study: ALiBi with learned slopes, trained at 64 bytes and tested at up to 512.

python examples/own_scheme.py            (about ten seconds; needs autograd and matplotlib)
"""

import autograd.numpy as anp

import posenc
from posenc_bridges import autograd as traced
from study import command, text
from study.evaluation import perplexity
from study.schemes import SCHEMES, Scheme, learned
from study.training import train

# The trained arrays, and the bias made from them. A slope is the exponential of a trained number, so it stays positive.
SCHEMES["learned slopes"] = Scheme(
    learned(logarithms=lambda setting, draw: anp.log(posenc.alibi_slopes(setting.heads)).astype("float32")),
    bias=lambda setting, weights: traced.alibi(anp.exp(weights["logarithms"])),
)

corpus, setting = text.embedded(), command.QUICK._replace(layers=1, steps=100)
count = text.target_count(corpus.test, 4096, setting.lengths)
print("perplexity by bytes in a window:")
for name in ("alibi", "learned slopes"):
    weights = train(setting, SCHEMES[name], corpus.train, corpus.vocabulary, seed=0)
    found = [perplexity(setting, SCHEMES[name], weights, corpus.test, count, n) for n in setting.lengths]
    print(f"{name:15}", *(f"{n}: {p:.2f}  " for n, p in zip(setting.lengths, found, strict=True)))
    assert found[-1] < 1.1 * found[0]  # neither fails at 8 times the training length
print("slopes", posenc.alibi_slopes(setting.heads), "->", anp.exp(weights["scheme.logarithms"]).round(3))
