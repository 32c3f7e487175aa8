"""Which version of each file was taken, in memory and in sorted runs."""
