"""The text in pictures: the socket that reads it, the process that does the work, and the cache of texts read."""
