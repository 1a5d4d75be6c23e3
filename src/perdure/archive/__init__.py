"""The archive is the truth: runs as captured bytes, a journal of events, packs, merging and forgetting."""
