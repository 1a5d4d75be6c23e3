"""What one's own memory was worth: outcomes of recalls, probes of one's own history, and the report that joins them."""
