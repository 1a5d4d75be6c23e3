"""C₀, the floor: what is always true, kept in files that a person can edit and put before every session."""
