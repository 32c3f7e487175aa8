"""The index of the versions of files that were taken, in memory and in sorted runs."""
