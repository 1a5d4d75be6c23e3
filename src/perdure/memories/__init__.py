"""Memories, pure: what people state and claim, by rules; the events that change memories; their replay; their decay.

The same text always gives the same answer. Every doubt goes against finding something: a memory that is missing is
asked for again, one that is wrong is believed. Nothing is imported here: events are read in every process, rules are
loaded by those that need them.
"""
