"""A module for each command, which holds it under the name `command`, and is imported when it is asked for."""
