"""The parts of record formats: they find delimiters, frame records, parse text and columns."""
