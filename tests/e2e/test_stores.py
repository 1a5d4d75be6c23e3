"""Real programs of other products: they read what we export, we read what they write, and their servers are sources."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp")

from click.testing import CliRunner
from mcp import Client, StdioServerParameters

import perdure
from perdure.surfaces.cli import cli
from rig.clients import Missing, program


@pytest.fixture
def server():
    """The command of a real server; skipped, and said so, where it is not to be had."""

    def find(name: str) -> list[str]:
        try:
            return [str(program("node")), str(program(name))]
        except Missing as missing:
            pytest.skip(f"{name} was not driven: {missing}")

    return find


def call(command: list[str], file: Path, tool: str, arguments: dict[str, Any]) -> Any:
    """Return what a tool of the memory server answers over a file."""

    async def ask() -> Any:
        parameters = StdioServerParameters(command=command[0], args=command[1:], env={"MEMORY_FILE_PATH": str(file)})
        async with Client(parameters) as client:
            return (await client.call_tool(tool, arguments)).structured_content

    return asyncio.run(ask())


def test_the_memory_server_reads_our_export_and_we_read_what_it_writes(server, home: Path, place: Path) -> None:
    command, file = server("mcp-memory"), place / "out" / "memory.jsonl"
    with perdure.open(home, user="tester") as opened:
        opened.remember("I prefer Helix", kind="preference", path="user/preferences/editor")
        opened.remember("The staging server listens on port 8443", path="servers/staging/port")
        opened.memories.export_to("memory-server", file.parent)
        graph = call(command, file, "read_graph", {})
        names = {entity["name"]: entity["observations"] for entity in graph["entities"]}
        assert names == {
            "user/preferences": ["I prefer Helix"], "servers/staging": ["The staging server listens on port 8443"],
        }  # fmt: skip
        contents = [{"entityName": "servers/staging", "contents": ["It moved to the cellar in May"]}]
        call(command, file, "add_observations", {"observations": contents})
        done = opened.memories.import_store("memory-server", file)
        assert [memory.text for memory in done.new] == ["servers/staging: It moved to the cellar in May"]
        assert len(done.plan.discarded) == 2 and opened.memories.import_store("memory-server", file).new == []


@pytest.mark.parametrize("name", ["mcp-memory", "mcp-everything"])
def test_a_real_server_is_a_source(name: str, server, home: Path, place: Path) -> None:
    command = [*server(name), *(["stdio"] if name == "mcp-everything" else [])]
    (place / "memory.jsonl").write_text(
        '{"type":"entity","name":"shop","entityType":"x","observations":["Opens at 9"]}'
    )
    tool = '{name = "read_graph"}' if name == "mcp-memory" else '{name = "echo", arguments = {message = "Opens at 9"}}'
    home.mkdir(mode=0o700)
    (home / "config.toml").write_text(
        f'[mcp.sources.real]\ncommand = {json.dumps(command)}\nenvironment = ["MEMORY_FILE_PATH"]\ntools = [{tool}]\n'
    )
    arguments = ["import", "--from", "mcp", "real", "--apply", "--json", "--home", str(home)]
    environment = {**os.environ, "MEMORY_FILE_PATH": str(place / "memory.jsonl")}
    for outcome in ("new", "unchanged"):
        done = CliRunner().invoke(cli, arguments, env=environment)
        assert done.exit_code == 0, done.output
        (result,) = json.loads(done.output)["result"]["sources"]
        assert {document["outcome"] for document in result["documents"]} == {outcome} and result["refused"] == []
    with perdure.open(home) as opened:
        assert any("Opens at 9" in hit.text for hit in opened.search("opens").hits)
