"""Lets `python -m dagflow.cli` do what `dagflow` does."""

from dagflow.cli.main import main

main()
