"""The proxy: memory for any client that takes a base URL. It edits one message of a request, and nothing else."""
