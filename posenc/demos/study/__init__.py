"""Train short, test long: perplexity of small models at lengths they were not trained at.

``python -m posenc study --quick`` trains a byte-level decoder once for each scheme, at one length, and reads the same
bytes of other texts in longer and longer windows (Press et al. 2022, figure 1, in small). ``--full`` has a larger model
and goes to sixteen times the length, ``--text FILE`` takes another text. Weights, study.json, study.csv and study.png
are left in ``--out``; after Ctrl-C the same command goes on. Needs the extra `study`.
"""
