"""The resident home: one process that keeps a home warm, answers its hooks and does what waits. Nothing needs it."""
