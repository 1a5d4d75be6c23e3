"""The archive in an S3-compatible store: what one machine puts there, all machines of the archive find."""
