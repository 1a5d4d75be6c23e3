"""The index: a cache. One SQLite file projected from the archive; delete it and rebuild it."""
