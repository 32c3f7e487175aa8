"""Runs operators: chains of them, in the tasks of a window, and in the driver for control operators."""
