"""Perdure: a memory for any LLM agent that outlives its context, its session, its machine and its model."""

__version__ = "0.1.0"
