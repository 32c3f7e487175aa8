"""Finds files: roots, walks, listings and the versions of the files found."""
