"""Lets `python -m dagflow` do what `dagflow` does."""

from dagflow.cli.main import main

main()
