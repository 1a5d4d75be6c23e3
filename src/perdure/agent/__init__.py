"""Perdure's own agent: its definition, its tools, and what they may do."""
