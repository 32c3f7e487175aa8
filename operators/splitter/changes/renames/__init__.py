"""Recognises files under another name: renamed, copied and truncated, or compressed since they were taken."""
