"""Policies for the number of partitions, for apps to name."""
