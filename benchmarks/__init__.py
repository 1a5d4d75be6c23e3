"""Measurements: each script prints its figures beside a limit or a baseline of the same run, and writes JSON."""
