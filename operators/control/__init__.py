"""Control operators behind the readers: they see each window's results once, in the driver."""
