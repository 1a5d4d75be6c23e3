"""The mind: what appends to memory. Statements kept, sessions mined, memories consolidated, use noticed."""
