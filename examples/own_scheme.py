"""One's own scheme in the study: ALiBi whose slopes are learned, beside ALiBi, trained at 64 bytes and read at 512.

python examples/own_scheme.py            (ten seconds or so; needs pip install "posenc[study]")
"""

import autograd.numpy as anp

import posenc
from posenc import autograd as traced
from posenc.demos.study import command, text
from posenc.demos.study.schemes import SCHEMES, Scheme, learned
from posenc.demos.study.training import perplexity, train

# What is learned, and the bias that is made of it: a slope is exp(a number), so it stays positive.
SCHEMES["learned slopes"] = Scheme(
    learned(logarithms=lambda setting, draw: anp.log(posenc.alibi_slopes(setting.heads)).astype("float32")),
    bias=lambda setting, weights: traced.alibi(anp.exp(weights["logarithms"])),
)

corpus, setting = text.embedded(), command.QUICK._replace(layers=1, steps=100)
count = text.targets(corpus.test, 4096, setting.lengths)
for name in ("alibi", "learned slopes"):
    weights = train(setting, SCHEMES[name], corpus.train, corpus.vocabulary, seed=0)
    found = [perplexity(setting, SCHEMES[name], weights, corpus.test, count, n) for n in setting.lengths]
    print(f"{name:15}", *(f"{n}: {p:.2f}  " for n, p in zip(setting.lengths, found, strict=True)))
    assert found[-1] < 1.1 * found[0]  # neither fails at 8 times the length
print("slopes", posenc.alibi_slopes(setting.heads), "->", anp.exp(weights["scheme.logarithms"]).round(3))
