"""Memories, pure: what a person plainly stated, what it claims, the events that change memories, and their replay."""
