"""Evaluation: known questions, what recall makes of them, and figures with their uncertainty."""
