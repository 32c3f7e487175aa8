"""Queries of SQL, planned into the operators that compute them."""
