"""What a run says of itself: a typed snapshot, kept up to date, and what the journal knows of windows and files."""
