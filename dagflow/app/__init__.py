"""Apps as Python objects: loaded from YAML or built in code, checked, shown and run, also in a notebook."""
