"""Writes an app for files that it has looked at."""
