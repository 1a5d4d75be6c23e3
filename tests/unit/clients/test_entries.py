"""Our MCP server in a client's settings: what is put in, what stays, what comes back."""

import json
import tomllib

import pytest

from perdure.clients import entries, setup
from perdure.errors import ClientFault

WHAT = entries.make_server_command("/opt/a b/python", "/home/ada/it's")
JSON = b"""{
    "mcpServers": {"theirs": {"command": "x"}},
    "mcp": {"theirs": {"type": "remote"}},
    "n": "Zo\xc3\xab"
}
"""
TOML = b'model = "gpt-5"\n\n[mcp_servers.theirs]\ncommand = "x"\n'


@pytest.fixture(params=entries.CLIENTS)
def client(request):
    return request.param


@pytest.fixture
def path(client, tmp_path):
    return tmp_path / ("config.toml" if client == "codex" else "settings.json")


def given(client):
    return TOML if client == "codex" else JSON


def put(client, path):
    change = setup.plan_install_server(client, path, WHAT)
    setup.apply_change(change, keep_copy=True)
    return change


def taken(client, path):
    change = setup.plan_uninstall_server(client, path)
    setup.apply_change(change, keep_copy=False)
    return change


def test_server_is_added_beside_the_others(client, path):
    path.write_bytes(given(client))
    assert put(client, path).has_effect and not put(client, path).has_effect
    text = path.read_text()
    assert entries.get_command(client, text, "") == [WHAT.command, *WHAT.args]
    found = tomllib.loads(text)["mcp_servers"] if client == "codex" else json.loads(text)
    assert "theirs" in (found if client == "codex" else found["mcp" if client == "opencode" else "mcpServers"])
    assert client == "codex" or "Zoë" in text


EMPTY = b'{"mcpServers": {}, "mcp": {}, "hooks": {}, "n":1}'


@pytest.mark.parametrize("text", [None, EMPTY, b"", b"\n"])
def test_uninstall_restores_every_byte(text, client, path):
    before = b"# mine\nn=1 # one" if client == "codex" and text == EMPTY else given(client) if text is None else text
    path.write_bytes(before)
    put(client, path)
    put(client, path)  # a second time: what was kept stays
    taken(client, path)
    assert path.read_bytes() == before and list(path.parent.iterdir()) == [path]
    assert not taken(client, path).has_effect


def test_later_change_of_the_file_survives_the_uninstall(client, path):
    path.write_bytes(given(client))
    put(client, path)
    path.write_bytes(path.read_bytes().replace(b'"x"', b'"y"').replace(b'"remote"', b'"y"'))
    taken(client, path)
    read = tomllib.loads if client == "codex" else json.loads
    was = given(client).replace(b'"x"', b'"y"').replace(b'"remote"', b'"y"')
    assert read(path.read_text()) == read(was.decode()) and list(path.parent.iterdir()) == [path]


def test_backup_is_deleted_without_our_entries_left(client, path):
    path.write_bytes(given(client))
    put(client, path)
    path.write_bytes(given(client))
    assert not taken(client, path).has_effect and list(path.parent.iterdir()) == [path]


def test_a_client_without_settings_gets_some(client, path):
    put(client, path.parent / "new" / path.name)
    assert entries.get_command(client, (path.parent / "new" / path.name).read_text(), "")
    taken(client, path.parent / "new" / path.name)
    assert list((path.parent / "new").iterdir()) == []


OURS = f"""[mcp_servers.perdure]
command = "/p"
args = ["-P", "-m", "{entries.SERVER_MARK}", "mcp"]
"""
REST = {"model": "gpt-5", "mcp_servers": {"theirs": {"command": "x"}}}
MORE = '[projects."/w"]\ntrust_level = "trusted"\n'
BEGINS, ENDS = "# perdure begins\n", "# perdure ends\n"


@pytest.mark.parametrize(
    ("before", "ours", "after"),
    [
        ("", BEGINS + OURS + "\n" + MORE + ENDS, {}),
        ("", BEGINS + OURS + "\n# of the projects\n" + MORE, {}),
        ("", OURS + "\n" + MORE + "\n" + ENDS, {}),
        ("", OURS + '[mcp_servers.perdure.env]\nA = "1"\n\n' + MORE, {}),
        ("", OURS + "\n" + MORE + '\n[mcp_servers."perdure".tools.a]\nb = 1\n', {}),
        ("", OURS.replace("[", "[ ", 1) + "required = true\n\n" + MORE, {}),
        ("notify = [\n  [1],\n[2]]\n", OURS + MORE, {"notify": [[1], [2]]}),
        ('s = """\n[a]\n"""\n', OURS + MORE, {"s": "[a]\n"}),
        ("", (OURS + "\n" + MORE).replace("\n", "\r\n"), {}),
        ("", OURS.replace('["-P', '[ # ours\n  "-P') + MORE, {}),
    ],
)
@pytest.mark.parametrize("again", [False, True])
def test_our_entry_is_recognised_after_a_rewrite_by_the_client(before, ours, after, again, tmp_path):
    path = tmp_path / "config.toml"
    path.write_text(before + TOML.decode() + "\n" + ours, newline="")
    if again:
        put("codex", path)
        assert entries.get_command("codex", path.read_text(), "") == [WHAT.command, *WHAT.args]
    taken("codex", path)
    text = path.read_text()
    assert tomllib.loads(text) == {**REST, **after, "projects": {"/w": {"trust_level": "trusted"}}}
    assert "perdure" not in text and "\n\n\n" not in text and ("# of" in ours) == ("# of" in text)


@pytest.mark.parametrize(
    "text",
    [
        f's = """\n{OURS}"""\n{OURS}',
        f's = """\n{BEGINS}"""\n{OURS}',
        f'[mcp_servers]\nperdure = {{command = "/p", args = ["{entries.SERVER_MARK}"]}}\n',
        f"mcp_servers.perdure.args = ['{entries.SERVER_MARK}']\nn = 1\n",
        f"a = [ # {entries.SERVER_MARK}\n",
        f"mcp_servers = ['{entries.SERVER_MARK}']",
    ],
)
def test_ambiguous_toml_is_left_alone(text, tmp_path):
    path = tmp_path / "config.toml"
    path.write_text(text)
    for change in (lambda: put("codex", path), lambda: taken("codex", path)):
        with pytest.raises(ClientFault):
            change()
    assert path.read_text() == text and list(tmp_path.iterdir()) == [path]


def test_foreign_server_with_our_name_stays(client, path):
    entry = {"mcpServers": {"perdure": {"command": "other"}}, "mcp": {"perdure": {"command": ["other"]}}}
    text = '[mcp_servers.perdure]\ncommand = "other"\n' if client == "codex" else json.dumps(entry)
    path.write_text(text)
    with pytest.raises(ClientFault):
        put(client, path)
    assert not taken(client, path).has_effect and path.read_text() == text


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
def test_invalid_settings_are_left_alone(client, text, tmp_path):
    path = tmp_path / "settings"
    path.write_text(text)
    with pytest.raises(ClientFault):
        setup.plan_install_server(client, path, WHAT)
    assert path.read_text() == text


def test_each_client_has_its_settings_path(tmp_path):
    def moved(name):
        return str(tmp_path / name) if name != "XDG_CONFIG_HOME" else None

    home = tmp_path / "ada"
    assert entries.find_server_settings("claude-code", home, lambda _: None) == home / ".claude.json"
    assert entries.find_server_settings("claude-code", home, moved) == tmp_path / "CLAUDE_CONFIG_DIR" / ".claude.json"
    assert entries.find_server_settings("codex", home, moved) == tmp_path / "CODEX_HOME" / "config.toml"
    assert (
        entries.find_server_settings("gemini-cli", home, moved)
        == tmp_path / "GEMINI_CLI_HOME" / ".gemini" / "settings.json"
    )
    assert entries.find_server_settings("qwen-code", home, moved) == tmp_path / "QWEN_HOME" / "settings.json"
    assert entries.find_server_settings("kimi-code", home, lambda _: None) == home / ".kimi-code" / "mcp.json"
    assert entries.find_server_settings("opencode", home, moved) == home / ".config" / "opencode" / "opencode.json"
