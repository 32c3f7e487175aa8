"""The kinds of stores that come with dagflow; BACKENDS of context.py has the schemes of each."""
