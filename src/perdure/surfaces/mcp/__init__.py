"""Perdure as an MCP server: any client that speaks the protocol can search, recall, remember and read."""
