"""Finding files: roots, walks, listings and the versions of what they find."""
