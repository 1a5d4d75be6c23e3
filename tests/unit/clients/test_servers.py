"""Our MCP server in a client's settings: what is put in, what stays, what comes back."""

import json
import tomllib

import pytest

from perdure.clients import servers, setup
from perdure.errors import ClientFault

WHAT = servers.server("/opt/a b/python", "/home/ada/it's")
JSON = b"""{
    "mcpServers": {"theirs": {"command": "x"}},
    "mcp": {"theirs": {"type": "remote"}},
    "n": "Zo\xc3\xab"
}
"""
TOML = b'model = "gpt-5"\n\n[mcp_servers.theirs]\ncommand = "x"\n'


@pytest.fixture(params=servers.CLIENTS)
def client(request):
    return request.param


def given(client):
    return TOML if client == "codex" else JSON


def put(client, path):
    change = setup.install_server(client, path, WHAT)
    setup.apply(change, keep=True)
    return change


def test_it_is_put_in_beside_what_is_there(client, tmp_path):
    path = tmp_path / "settings"
    path.write_bytes(given(client))
    assert put(client, path).is_one and not put(client, path).is_one
    text = path.read_text()
    assert servers.command_of(client, text, "") == [WHAT.command, *WHAT.args]
    found = tomllib.loads(text)["mcp_servers"] if client == "codex" else json.loads(text)
    assert "theirs" in (found if client == "codex" else found["mcp" if client == "opencode" else "mcpServers"])
    assert client == "codex" or "Zoë" in text


def test_taken_out_again_everything_else_is_as_it_was(client, tmp_path):
    path = tmp_path / "settings"
    path.write_bytes(given(client))
    put(client, path)
    setup.apply(setup.uninstall_server(client, path), keep=False)
    left = path.read_bytes()
    assert (left == TOML) if client == "codex" else json.loads(left) == json.loads(JSON)
    assert not setup.uninstall_server(client, path).is_one


def test_a_client_without_settings_gets_some(client, tmp_path):
    path = tmp_path / "new" / "settings"
    put(client, path)
    assert servers.command_of(client, path.read_text(), "")
    setup.apply(setup.uninstall_server(client, path), keep=False)
    assert not servers.command_of(client, path.read_text(), "")


@pytest.mark.parametrize(
    ("client", "text"),
    [
        ("codex", "a = ["),
        ("codex", '[mcp_servers.perdure]\ncommand = "other"\n'),
        ("claude-code", "[]"),
        ("opencode", '{"mcp": []}'),
        ("gemini-cli", "{"),
    ],
)
def test_what_is_not_understood_is_left_alone(client, text, tmp_path):
    path = tmp_path / "settings"
    path.write_text(text)
    with pytest.raises(ClientFault):
        setup.install_server(client, path, WHAT)
    assert path.read_text() == text


def test_each_client_has_its_place(tmp_path):
    def moved(name):
        return str(tmp_path / name) if name != "XDG_CONFIG_HOME" else None

    home = tmp_path / "ada"
    assert servers.settings_path("claude-code", home, lambda _: None) == home / ".claude.json"
    assert servers.settings_path("claude-code", home, moved) == tmp_path / "CLAUDE_CONFIG_DIR" / ".claude.json"
    assert servers.settings_path("codex", home, moved) == tmp_path / "CODEX_HOME" / "config.toml"
    assert (
        servers.settings_path("gemini-cli", home, moved) == tmp_path / "GEMINI_CLI_HOME" / ".gemini" / "settings.json"
    )
    assert servers.settings_path("opencode", home, moved) == home / ".config" / "opencode" / "opencode.json"
