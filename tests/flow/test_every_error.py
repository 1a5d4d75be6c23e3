"""Every command in every bad state of a home: each error names a way out, which is there and works in this state."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import perdure
from perdure import errors
from perdure.surfaces.cli import cli

SAMPLES = Path(perdure.__file__).parent / "samples"
NOT_WALKED = {
    "acp",
    "serve",
    "page",
    "mcp",
    "proxy",
    "telegram",
    "mail",
    "service",
    "join",
    "sync",
    "doctor",
    "eval",
    "completion",
    "memory init",
    "models test",
    "models time",
}
Command = tuple[tuple[str, ...], click.Command]


def list_commands(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[Command]:
    for name in group.list_commands(click.Context(group)):
        found = group.get_command(click.Context(group), name)
        assert found is not None
        yield (*path, name), found
        if isinstance(found, click.Group):
            yield from list_commands(found, (*path, name))


COMMANDS = dict(list_commands(cli))
WALKED = {
    path: found
    for path, found in COMMANDS.items()
    if not {path[0], " ".join(path)} & NOT_WALKED and not isinstance(found, click.Group)
}


def make_arguments(found: click.Command) -> list[str]:
    """Return arguments of the right form that name nothing."""
    words: list[str] = []
    for parameter in found.params:
        if isinstance(parameter, click.Option):
            words += [parameter.opts[0], "nobody"] if parameter.required else []
        elif isinstance(parameter.type, click.Choice):
            words.append(parameter.type.choices[0])
        elif parameter.required or not isinstance(parameter.type, click.Path):
            words += ["1" if parameter.type is click.INT else "nothing"] * max(1, parameter.nargs)
    return words


def damage_index(home: Path) -> None:
    (home / "index.db").resolve().write_bytes(b"not a database" * 1000)


def lose_index(home: Path) -> None:
    for path in home.glob("index*"):
        path.unlink()


STATES: dict[str, tuple[Callable[[Path], object], str]] = {  # name: (what happens to the home, code of its error)
    "whole": (lambda home: None, ""),
    "missing": (shutil.rmtree, errors.HomeMissing().code),
    "damaged index": (damage_index, errors.IndexDamaged().code),
    "lost index": (lose_index, errors.IndexMissing().code),
    "newer": (lambda home: (home / "archive" / "FORMAT").write_text("99\n"), errors.NewerFormat().code),
    "bad settings": (lambda home: (home / "config.toml").write_text("[nonsense\n"), errors.ConfigFault().code),
    "thin": (
        lambda home: (home / "config.toml").write_text('[remote]\nurl = "http://127.0.0.1:9"\n'),
        errors.ThinHome().code,
    ),
}
FILE_STATES = {"damaged index", "lost index"}


@pytest.fixture(scope="module")
def whole_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("whole") / "home"
    with perdure.open(home) as opened:
        opened.import_files([SAMPLES / "codex"])
    return home


@pytest.mark.parametrize(
    "state",
    [
        pytest.param(state, marks=pytest.mark.index_file("it damages the file") if state in FILE_STATES else ())
        for state in STATES
    ],
)
def test_every_error_of_every_command_ends_in_advice_that_works(
    state: str, whole_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    change, code = STATES[state]
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "1000")
    failed: dict[tuple[str, ...], str] = {}
    for number, (path, found) in enumerate(WALKED.items()):
        home = tmp_path / str(number) / "home"
        shutil.copytree(whole_home, home, symlinks=True)
        change(home)
        monkeypatch.setenv("PERDURE_HOME", str(home))
        monkeypatch.chdir(home.parent)
        done = CliRunner().invoke(cli, [*path, *make_arguments(found)], input="")
        assert done.exception is None or isinstance(done.exception, SystemExit), (path, done.exception)
        if done.exit_code:
            failed[path] = done.stderr + done.stdout
    refused = {path for path, text in failed.items() if code and text_of(code) in text}
    assert not code or refused or state == "lost index", "no command met this state"
    for path, text in failed.items():
        assert text.strip() and "Something went wrong" not in text, path
        advised = list(find_commands(text))
        for other, words in advised:
            assert other in COMMANDS, (path, f"advises `perdure {words}`, which does not exist")
            assert words.split() != list(path) or other not in refused, (path, "advises itself")
        if path in refused and advised:
            assert not {other for other, _ in advised} <= refused, (path, "advises only what is refused, too", text)


def text_of(code: str) -> str:
    """The advice of an error, up to its first full stop: it stands in each message of it."""
    error = next(kind for kind in list_kinds(errors.PerdureError) if kind().code == code)
    return str(error()).partition(".")[0]


def list_kinds(kind: type[errors.PerdureError]) -> Iterator[type[errors.PerdureError]]:
    yield kind
    for below in kind.__subclasses__():
        yield from list_kinds(below)


def find_commands(text: str) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield (path of the command, its words) of each command of Perdure in a text."""
    for words in re.findall(r"`perdure ([a-z][^`]*)`", text):
        parts = words.split()
        paths = [tuple(parts[:n]) for n in range(len(parts), 0, -1)]
        yield next((path for path in paths if path in COMMANDS), (parts[0],)), words
