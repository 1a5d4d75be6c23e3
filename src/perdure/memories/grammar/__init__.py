"""Rules that guess statements from plain sentences. A later issue replaces them: nothing inside is renamed."""
