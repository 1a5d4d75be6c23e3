"""Recall, M(I): a message in, the few turns that matter out, or silence. Pure but for the candidates it asks for."""
