"""A client's settings: what is put in, what stays, what comes back."""

from __future__ import annotations

import json
import re
import stat
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.capture import transcripts
from perdure.clients import entries, setup
from perdure.errors import Busy, ClientFault

PROGRAM = entries.HookProgram("/opt/a b/python", "/opt/it's/__main__.py", "/home/ada/.perdure")
SETTINGS = b"""{
    "model": "opus",
    "hooks": {"Stop": [{"matcher": "Bash", "hooks": [{"type": "command", "command": "theirs"}]}], "Notification": []},
    "permissions": {"allow": ["Bash(ls:*)"], "name": "Zo\xc3\xab"}
}
"""


@pytest.fixture(params=["claude-code", "codex", "gemini-cli", "qwen-code"])
def client(request) -> str:
    return request.param


def put(path: Path, client: str) -> setup.SettingsChange:
    change = setup.plan_install(client, path, PROGRAM)
    setup.apply_change(change, keep_copy=True)
    return change


def taken(path: Path, client: str) -> setup.SettingsChange:
    change = setup.plan_uninstall(client, path)
    setup.apply_change(change, keep_copy=False)
    return change


def test_existing_entries_keep_their_order(client: str, tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    path.write_bytes(SETTINGS)
    put(path, client)
    was, now = json.loads(SETTINGS), json.loads(path.read_bytes())
    assert list(now) == list(was) and {**now, "hooks": None} == {**was, "hooks": None}
    assert now["hooks"]["Stop"][0] == was["hooks"]["Stop"][0] and now["hooks"]["Notification"] == []
    assert set(setup.read_commands(client, path)) == set(entries.EVENTS[client])
    assert b"Zo\xc3\xab" in path.read_bytes() and b'\n    "model"' in path.read_bytes()


def test_second_install_changes_nothing(client: str, tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    path.write_bytes(SETTINGS)
    assert put(path, client).has_effect
    assert not put(path, client).has_effect


def test_another_home_replaces_the_hooks(client: str, tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    put(path, client)
    setup.apply_change(setup.plan_install(client, path, PROGRAM._replace(home="/other")), keep_copy=True)
    assert {entries.get_home(line) for line in setup.read_commands(client, path).values()} == {"/other"}
    groups = json.loads(path.read_bytes())["hooks"]
    assert {event: len(entries) for event, entries in groups.items()} == dict.fromkeys(entries.EVENTS[client], 1)


def test_uninstall_restores_every_byte(client: str, tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    path.write_bytes(SETTINGS)
    put(path, client)
    put(path, client)
    taken(path, client)
    assert path.read_bytes() == SETTINGS and [p.name for p in tmp_path.iterdir()] == ["settings.json"]
    assert not taken(path, client).has_effect


def test_uninstall_restores_a_file_shared_with_our_tools(tmp_path: Path) -> None:
    """Gemini CLI has hooks and servers in one file; servers go first."""
    path = tmp_path / "settings.json"
    path.write_bytes(SETTINGS)
    put(path, "gemini-cli")
    setup.apply_change(
        setup.plan_install_server("gemini-cli", path, entries.make_server_command("/p", "/h")), keep_copy=True
    )
    setup.apply_change(setup.plan_uninstall_server("gemini-cli", path), keep_copy=False)
    taken(path, "gemini-cli")
    assert path.read_bytes() == SETTINGS and [p.name for p in tmp_path.iterdir()] == ["settings.json"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("settings.json", '{\n  "model": "opus"\n}\n'),
        ("config.toml", '# mine\nmodel = "opus"\n\n[[hooks]]\nevent = "Stop"\ncommand = "mine"\n'),
    ],
)
def test_line_ends_of_windows_stay(name: str, text: str, tmp_path: Path) -> None:
    path, client = tmp_path / name, "kimi-code" if name == "config.toml" else "claude-code"
    path.write_bytes(text.replace("\n", "\r\n").encode())
    put(path, client)
    installed = path.read_bytes()
    assert installed.count(b"\n") == installed.count(b"\r\n")
    path.write_bytes(installed.replace(b"opus", b"haiku"))
    taken(path, client)
    assert path.read_bytes() == text.replace("\n", "\r\n").replace("opus", "haiku").encode()


@pytest.mark.parametrize("client", ["claude-code", "opencode"])
def test_half_of_a_surrogate_pair_stays_in_the_settings(client: str, tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    path.write_bytes(b'{\n  "env": {"A": "\\ud800 \\udfff"},\n  "name": "\\ud83d\\ude00"\n}\n')
    change = setup.plan_install_server(client, path, entries.make_server_command("/p", "/h"))
    setup.apply_change(change, keep_copy=True)
    if client == "claude-code":
        put(path, client)
    installed = path.read_bytes()
    assert rb'"\ud800 \udfff"' in installed
    assert "😀".encode() in installed


def test_settings_that_are_nested_too_deep_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    path.write_text('{"a": ' + "[" * 100_000 + "]" * 100_000 + "}")
    with pytest.raises(ClientFault, match=re.escape(str(path))):
        setup.plan_install("claude-code", path, PROGRAM)


def test_later_change_of_the_file_survives_the_uninstall(client: str, tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    path.write_bytes(SETTINGS)
    put(path, client)
    path.write_bytes(path.read_bytes().replace(b'"opus"', b'"haiku"'))
    taken(path, client)
    assert json.loads(path.read_bytes()) == {**json.loads(SETTINGS), "model": "haiku"}


def test_uninstall_deletes_a_file_that_install_created(client: str, tmp_path: Path) -> None:
    path = tmp_path / "deep" / "settings.json"
    put(path, client)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    taken(path, client)
    assert list((tmp_path / "deep").iterdir()) == []


STRANGE = [b"{", b"[]", b"// a comment\n{}", b"\xff", b"null", b'{"hooks": []}', b'{"hooks": {"Stop": {}}}']


@pytest.mark.parametrize("raw", [*STRANGE, b'{"hooks": {"Stop": ["x"]}}'])
def test_invalid_settings_are_left_alone(raw: bytes, client: str, tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    path.write_bytes(raw)
    for change in (lambda: setup.plan_install(client, path, PROGRAM), lambda: setup.plan_uninstall(client, path)):
        with pytest.raises(ClientFault):
            change()
    assert path.read_bytes() == raw and len(list(tmp_path.iterdir())) == 1


def test_a_file_that_changed_since_is_not_written(client: str, tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    path.write_bytes(SETTINGS)
    change = setup.plan_install(client, path, PROGRAM)
    path.write_bytes(b"{}")
    with pytest.raises(Busy):
        setup.apply_change(change, keep_copy=True)
    assert path.read_bytes() == b"{}"


def test_a_link_stays_a_link_and_the_mode_a_mode(client: str, tmp_path: Path) -> None:
    (tmp_path / "dotfiles").mkdir()
    (tmp_path / ".claude").mkdir()
    target, name = tmp_path / "dotfiles" / "s.json", "hooks.json" if client == "codex" else "settings.json"
    target.write_bytes(SETTINGS)
    target.chmod(0o640)
    folder = tmp_path / f".{client.partition('-')[0]}"
    folder.mkdir(exist_ok=True)
    (folder / name).symlink_to(target)
    put(setup.find_client_settings(client, tmp_path, lambda _: None), client)
    assert (folder / name).is_symlink() and stat.S_IMODE(target.stat().st_mode) == 0o640
    assert setup.read_commands(client, target)


def test_folder_setting_of_the_client_is_respected(tmp_path: Path) -> None:
    moved = {"CLAUDE_CONFIG_DIR": str(tmp_path / "c"), "CODEX_HOME": str(tmp_path / "x"), "PI_CODING_AGENT_DIR": "/p"}
    assert setup.find_client_settings("claude-code", tmp_path, moved.get) == tmp_path / "c" / "settings.json"
    assert setup.find_client_settings("codex", tmp_path, moved.get) == tmp_path / "x" / "hooks.json"
    assert setup.find_client_settings("pi", tmp_path, moved.get) == Path("/p/extensions/perdure.ts")
    moved = {"GEMINI_CLI_HOME": "/g", "XDG_CONFIG_HOME": "/x", "XDG_DATA_HOME": "/d"}
    assert setup.find_client_settings("gemini-cli", tmp_path, moved.get) == Path("/g/.gemini/settings.json")
    assert setup.find_client_settings("opencode", tmp_path, moved.get) == Path("/x/opencode/plugin/perdure.js")
    moved |= {"QWEN_HOME": "/q", "KIMI_CODE_HOME": "/k"}
    assert setup.find_client_settings("qwen-code", tmp_path, moved.get) == Path("/q/settings.json")
    assert setup.find_client_settings("kimi-code", tmp_path, moved.get) == Path("/k/config.toml")
    assert dict(transcripts.list_roots(tmp_path, moved.get))["opencode"] == Path("/d/opencode")
    assert setup.find_client_settings("opencode", tmp_path, lambda _: None).parts[-4:-1] == (
        ".config",
        "opencode",
        "plugin",
    )


def test_diff_shows_the_added_lines(client: str, tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    path.write_bytes(b"{}\n")
    diff = setup.plan_install(client, path, PROGRAM).diff()
    asked = "BeforeAgent" if client == "gemini-cli" else "UserPromptSubmit"
    assert diff.startswith(f"--- {path}\n+++ {path}\n@@") and "-{}\n" in diff and asked in diff


@pytest.mark.parametrize(("name", "file"), [("pi", "extensions/perdure.ts"), ("opencode", "plugin/perdure.js")])
def test_extension_is_installed_and_removed_but_no_foreign_one(name: str, file: str, tmp_path: Path) -> None:
    path = tmp_path / file
    put(path, name)
    (line,) = setup.read_commands(name, path).values()
    assert entries.get_home(line) == PROGRAM.home and "null;" not in path.read_text().split("const COMMAND")[1][:200]
    assert f" {name} " in line and path.read_text().count("const COMMAND") == 1
    assert not put(path, name).has_effect
    taken(path, name)
    assert not path.exists()
    path.write_text("export default () => {}")
    with pytest.raises(ClientFault):
        setup.plan_install(name, path, PROGRAM)
    assert not taken(path, name).has_effect


@pytest.mark.parametrize("event", ["SessionStart", "Stop"])
@pytest.mark.parametrize("home", ["/home/ada/.perdure", "/a b/it's || x"])
def test_command_names_its_home_and_may_name_another(home: str, event: str) -> None:
    line = entries.make_command(home, "codex", event=event)
    assert entries.get_home(line) == home
    assert entries.get_home(entries.change_home(line, "/c d/it's")) == "/c d/it's"


@pytest.mark.parametrize("line", ["something perdure-hook else", "sh /bin/other codex || true", "perdure --home"])
def test_foreign_command_has_no_home(line: str) -> None:
    with pytest.raises(ClientFault):
        entries.get_home(line)


def test_command_is_short_enough_for_a_client_to_show() -> None:
    assert len(entries.make_command("/home/ada/.perdure", "claude-code", event="PreCompact")) <= 60


@pytest.mark.parametrize("shell", ["sh", "bash", "zsh", "fish"])
def test_every_shell_reads_the_command(shell: str, tmp_path: Path) -> None:
    """Paths with blanks and quotes reach the program whole, and a failed program harms nothing."""
    home = tmp_path / "h $x `y`"
    python = tmp_path / "a b" / "it's python"
    hook = tmp_path / "hook"
    for folder in (python.parent, home):
        folder.mkdir()
    python.write_text('#!/bin/sh\nprintf "%s|" "$@"\nexit 7\n')
    python.chmod(0o755)
    hook.write_text("")
    setup.write_script(entries.HookProgram(str(python), str(hook), str(home)))
    line = entries.make_command(str(home), "codex", event="SessionStart")
    try:
        done = subprocess.run([shell, "-c", line], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip(f"no {shell} here")
    assert (done.returncode, done.stdout) == (0, f"-IS|{hook}|--home|{home}|codex|")


JSON = st.none() | st.integers() | st.text(max_size=3) | st.lists(st.integers(), max_size=2)

ENTRY = st.dictionaries(st.sampled_from(["matcher", "hooks", "x"]), JSON)
GROUPS = st.dictionaries(st.sampled_from([*entries.EVENTS["codex"], "Notification"]), st.lists(ENTRY, max_size=3))


@settings(max_examples=60)
@given(st.dictionaries(st.text(max_size=3), st.integers(), max_size=3), st.none() | GROUPS)
def test_any_settings_survive_install_and_uninstall(given_: dict, groups: dict | None) -> None:
    """Put in and taken out: what a client could mean is unchanged; only a list of nothing may be gone."""
    given_.pop("hooks", None)
    if groups is not None:
        given_["hooks"] = groups
    there = entries.add_hooks(given_, "codex", PROGRAM.home)
    assert set(entries.find_commands(there)) == set(entries.EVENTS["codex"])
    back = entries.remove_hooks(there)
    filled = {event: entries for event, entries in (groups or {}).items() if entries or event == "Notification"}
    assert {**back, "hooks": back.get("hooks", {})} == {**given_, "hooks": filled}
