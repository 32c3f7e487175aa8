"""The types of columns: their names, and which text is a value of each."""
