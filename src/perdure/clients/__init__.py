"""Setting up the clients that agents run in: what is put into their settings, how it is taken out again."""
