"""The kinds of stores that come with dagflow; registry.py lists the schemes of each."""
