"""Perdure over HTTP: one home for other machines, other programs and other people, each with a credential."""
