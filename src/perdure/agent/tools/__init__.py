"""The tools of an agent, a file per group; each builds the `Tool` that a session runs."""
