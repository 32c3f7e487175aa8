"""What an operator may declare beside its ports and properties."""
