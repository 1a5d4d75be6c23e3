"""Surfaces: where people and programs meet Perdure."""
