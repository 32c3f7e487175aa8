"""From an app to what runs: the logical plan, checked whole, and the physical plan."""
