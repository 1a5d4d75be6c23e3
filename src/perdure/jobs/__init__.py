"""Jobs by the clock: when one is due, that it never runs twice at once, and what became of it. Knows none by name."""
