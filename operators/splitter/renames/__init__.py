"""Files that go by another name: renamed, copied and truncated, or compressed since they were taken."""
