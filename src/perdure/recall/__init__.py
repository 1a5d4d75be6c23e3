"""Recall, M(I): a message in, the few turns that matter out, or silence.
Pure, except for the candidates that it reads from the index.
"""
