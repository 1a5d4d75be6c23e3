"""MCP servers of a client as the agent's own."""

from __future__ import annotations

from acp.schema import EnvVariable, HttpHeader, HttpMcpServer, McpServerStdio, SseMcpServer

from perdure.surfaces.acp.servers import read_servers


def test_programs_and_plain_addresses_are_taken() -> None:
    program = McpServerStdio(name="Docs", command="/bin/docs", args=["-v"], env=[EnvVariable(name="A", value="b")])
    address = HttpMcpServer(type="http", name="web", url="https://example.org/mcp", headers=[])
    choice = read_servers([program, address])
    docs, web = choice.servers
    assert (docs.name, docs.command, docs.args, docs.env) == ("Docs", "/bin/docs", ("-v",), (("A", "b"),))
    assert (web.name, web.url, choice.problems) == ("web", "https://example.org/mcp", ())


def test_what_cannot_be_used_says_why() -> None:
    header = HttpHeader(name="Authorization", value="Bearer x")
    choice = read_servers([
        HttpMcpServer(type="http", name="web", url="https://example.org", headers=[header]),
        SseMcpServer(type="sse", name="old", url="https://example.org", headers=[]),
    ])  # fmt: skip
    assert choice.servers == ()
    web, old = choice.problems
    assert "web of the editor is not used, because of its headers" in web and "because of its transport" in old
