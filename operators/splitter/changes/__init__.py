"""What is new or changed: the files of a scan, compared with the index."""
