"""State that programs of others keep in a home: items, checkpoints and sessions, exactly as they gave them."""
