"""Capture on the client's machine, with the standard library only: transcripts, outbox, delivery, privacy."""
