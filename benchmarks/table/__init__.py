"""The public table of memory for coding agents: what each system puts before a model, without a model that judges."""
