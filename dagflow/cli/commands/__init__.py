"""One module per command; each holds it under the name `command`, and is imported when it is asked for."""
