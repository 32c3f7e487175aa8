"""Tables that records are joined with: where they are read from, and how rows are found by their keys."""
