"""The functions and operators of expressions: one module for each kind of value."""
