"""From YAML to an app whose parts know where they were written."""
