"""The tour: the effect of each position-encoding operator on real text.

The schemes and their effects are those of `python -m posenc --all`, in posenc/__main__.py. `text` chooses the words,
`pictures` draws and describes, and `pages` writes index.html and slides.html. The same text gives the same numbers.
"""
