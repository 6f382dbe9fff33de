"""Train short, test long: perplexity of small models on windows longer than the training windows.

``python examples/study --quick`` trains a byte-level decoder once per scheme on windows of one length. It then
evaluates each model on the same test bytes in longer and longer windows (Press et al. 2022, figure 1, at a small
scale). ``--full`` trains a larger model and evaluates it up to 16 times the training length. ``--text FILE`` trains and
tests on the bytes of FILE. ``--length N`` trains on windows of N bytes. The numbers, study.json, and the figure,
study.png, are written to ``--out``. It needs matplotlib and ``posenc_bridges.autograd``.
"""
