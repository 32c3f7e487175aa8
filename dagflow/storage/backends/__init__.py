"""The kinds of stores that come with dagflow; registry.py says which scheme belongs to which."""
