"""What is counted, and under which names."""
