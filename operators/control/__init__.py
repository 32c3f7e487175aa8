"""Control operators that take in each window's results, once and in order, in the driver."""
