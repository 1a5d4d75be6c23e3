"""Forgetting: from what a person points at to the last byte of it, and a user who leaves with everything."""
