"""Clients: how Perdure is put into the settings of the programs that agents run in, and taken out again."""
