"""Serve one home over HTTP to other machines, programs and people, each with a credential."""
