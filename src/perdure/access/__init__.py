"""Access control of text: secrets are masked before text reaches anything derived or shown."""
