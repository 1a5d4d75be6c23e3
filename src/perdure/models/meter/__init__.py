"""What models cost: the caps on it, and the record of it."""
