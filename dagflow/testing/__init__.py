"""What tests of operators and apps are built from."""
