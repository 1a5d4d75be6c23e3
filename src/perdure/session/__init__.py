"""Conversations that Perdure holds itself: an append-only log, the context of each turn, and compaction."""
