"""Formats: bytes of a transcript become turns. Pure: no disk, no clock, no index."""
