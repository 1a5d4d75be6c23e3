"""Access: what may be seen. Secrets are masked before text reaches anything derived or shown."""
