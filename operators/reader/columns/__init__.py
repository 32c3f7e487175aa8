"""The types of columns: their names, and the texts that are values of each."""
