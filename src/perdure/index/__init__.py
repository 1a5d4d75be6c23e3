"""The index: a cache of the archive. One SQLite file projected from the archive; delete it, rebuild it,
and it gives the same answers.
"""
