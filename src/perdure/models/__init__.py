"""All access to models: the protocols `Chat` and `Embedder`, their implementations, and their share of the
processor.
"""
