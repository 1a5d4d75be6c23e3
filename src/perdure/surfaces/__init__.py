"""The surfaces: command line, HTTP, web page, MCP server and memory tool."""
