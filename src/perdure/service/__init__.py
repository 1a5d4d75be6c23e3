"""The resident home: a process that keeps a home open, answers its hooks and does the waiting work.

It is optional.
"""
