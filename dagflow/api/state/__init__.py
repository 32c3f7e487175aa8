"""How keys and the state of operators are written into a checkpoint, and read again."""
