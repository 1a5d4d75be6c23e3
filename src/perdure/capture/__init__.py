"""Capture: runs on the client's machine with the standard library only. Lines and offsets, outbox, privacy switches."""
