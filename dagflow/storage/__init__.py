"""Where bytes are: locations, files to read, files to publish, and the store that a journal lives in."""
