"""Files and blocks as operators pass them on: metadata, batches of small files, names, compression."""
