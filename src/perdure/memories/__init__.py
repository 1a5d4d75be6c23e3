"""Memories: short statements worth keeping, how they are made, changed, found, tidied up and judged.

Truth is the journal: every change of a memory is an event, and the rows of the index follow from the
events. This package imports the index, the archive, models and formats, never recall. `explicit`
finds by rules what a person tells an agent to keep, `subject` what a memory is about: the same text always gives
the same answer, and every doubt goes against finding a statement, because a missing memory is asked for again and
a wrong one is believed. Nothing is imported here: rules are loaded by the processes that need them.
"""
