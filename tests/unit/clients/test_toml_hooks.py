"""The hooks of Kimi Code, which stand in a file of TOML: what is put in, what stays, what comes back."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from perdure.clients import entries, setup, toml_hooks
from perdure.errors import ClientFault

HOME = "/home/ada/it's"
PROGRAM = entries.HookProgram("/opt/a b/python", "/opt/__main__.py", HOME)
SETTINGS = """\
default_model = "scripted"   # mine

[models.scripted]
capabilities = [
  "tool_use",
]

# tells me when it waits
[[hooks]]
event = "Stop"
command = "notify 'it waits'"

[providers.local]
type = "openai"
"""


def put(path: Path) -> setup.SettingsChange:
    change = setup.plan_install("kimi-code", path, PROGRAM)
    setup.apply_change(change, keep_copy=True)
    return change


def taken(path: Path) -> setup.SettingsChange:
    change = setup.plan_uninstall("kimi-code", path)
    setup.apply_change(change, keep_copy=False)
    return change


def test_hooks_stand_behind_the_settings_and_theirs_stay() -> None:
    text = toml_hooks.add_hooks(SETTINGS, "kimi-code", HOME, "config.toml")
    assert text.startswith(SETTINGS)
    theirs, *ours = tomllib.loads(text)["hooks"]
    assert theirs == {"event": "Stop", "command": "notify 'it waits'"}
    assert [hook["event"] for hook in ours] == list(entries.EVENTS["kimi-code"])
    assert {hook["timeout"] for hook in ours} == {3, 5} and set(ours[0]) == {"event", "command", "timeout"}
    assert {entries.get_home(line) for line in toml_hooks.find_commands(text, "").values()} == {HOME}
    assert toml_hooks.add_hooks(text, "kimi-code", HOME, "") == text


def test_another_home_replaces_the_hooks() -> None:
    text = toml_hooks.add_hooks(SETTINGS, "kimi-code", HOME, "")
    moved = toml_hooks.add_hooks(text, "kimi-code", "/other", "")
    assert {entries.get_home(line) for line in toml_hooks.find_commands(moved, "").values()} == {"/other"}
    assert len(tomllib.loads(moved)["hooks"]) == 1 + len(entries.EVENTS["kimi-code"])


@pytest.mark.parametrize("text", [SETTINGS, SETTINGS.rstrip(), "\n\n" + SETTINGS + "\n\n", "", "hooks = []\n"])
def test_uninstall_restores_every_byte(text: str, tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text(text)
    if text.startswith("hooks"):
        with pytest.raises(ClientFault):
            put(path)  # a list on one line cannot be added to
    else:
        assert put(path).has_effect and not put(path).has_effect
        taken(path)
    assert path.read_text() == text and [file.name for file in tmp_path.iterdir()] == ["config.toml"]


def test_uninstall_deletes_a_file_that_install_created(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "config.toml"
    put(path)
    taken(path)
    assert list((tmp_path / "deep").iterdir()) == []


def test_later_changes_survive_the_uninstall(tmp_path: Path) -> None:
    """As Kimi Code writes it: in another order and spacing, with a table of its own behind ours."""
    path = tmp_path / "config.toml"
    path.write_text(SETTINGS)
    put(path)
    rewritten = path.read_text().replace(" = ", "=").replace("[[hooks]]", "[[ hooks ]]")
    path.write_text(f'{rewritten}\n# the next one\n[thinking]\neffort = "off"\n')
    taken(path)
    remaining = tomllib.loads(path.read_text())
    assert remaining == {**tomllib.loads(SETTINGS), "thinking": {"effort": "off"}}
    assert "# the next one\n[thinking]" in path.read_text() and "# tells me" in path.read_text()


@pytest.mark.parametrize("text", ["a = [", '[hooks]\nevent = "Stop"\n', "hooks = 3\n"])
def test_settings_of_another_shape_are_left_alone(text: str, tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text(text)
    for plan in (lambda: put(path), lambda: setup.read_commands("kimi-code", path)):
        with pytest.raises(ClientFault):
            plan()
    assert path.read_text() == text


def test_our_hooks_on_one_line_are_refused_not_guessed(tmp_path: Path) -> None:
    command = entries.make_command("/h", "kimi-code", event="Stop")
    text = f"hooks = [{{event = 'Stop', command = \"{command}\"}}]\n"
    with pytest.raises(ClientFault, match="by hand"):
        toml_hooks.remove_hooks(text, str(tmp_path))
