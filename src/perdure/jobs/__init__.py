"""Scheduled jobs: when one is due, and the log of its runs. Knows no job by name."""
