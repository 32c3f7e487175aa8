"""Output formats: how records become the bytes of a file."""
