"""The floor (C₀): the facts that every session begins with, kept in files that a person can edit."""
