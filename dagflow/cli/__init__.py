"""The `dagflow` command: parses the command line, and prints the results of the layers below."""
