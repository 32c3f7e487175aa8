"""Capabilities that few operators declare; operator.py, control.py and partitioning.py have the common ones."""
