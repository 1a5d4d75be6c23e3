"""The archive: the truth. Runs as captured bytes, a journal of events, packs, merge and forget."""
