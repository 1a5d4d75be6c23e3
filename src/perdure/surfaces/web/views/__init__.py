"""The pages, one module per group of addresses."""
