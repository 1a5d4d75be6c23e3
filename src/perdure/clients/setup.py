"""Put Perdure into a client's settings and take it out again: decided as a change first, written in one step.

A change is the whole content of a file before and after. It is written only while the file still holds what the
change was made from; what was there is kept beside it, and comes back, byte for byte, when we are taken out again.
"""

from __future__ import annotations

import difflib
import json
import os
import shlex
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from perdure.capture import files, places
from perdure.clients import hooks, servers
from perdure.errors import Busy, ClientFault

CLIENTS = ("claude-code", "codex", "pi", "gemini-cli", "opencode")
_FILES = {
    "claude-code": "settings.json",
    "codex": "hooks.json",
    "pi": "extensions/perdure.ts",
    "gemini-cli": "settings.json",
    "opencode": "plugin/perdure.js",
}
_OPENCODE = (".config/opencode", "XDG_CONFIG_HOME/opencode")  # its transcripts lie elsewhere
_EXTENSIONS = {"pi": "pi.ts", "opencode": "opencode.js"}  # client -> the file of ours that is put into it
_ASKED = {"pi": "before_agent_start", "opencode": "chat.message"}  # its event that stands for all
_KEPT = ".before-perdure"
_LINE = "const COMMAND"


@dataclass(frozen=True)
class Change:
    """One file of a client, before and after. None: there is no file."""

    path: Path
    before: bytes | None
    after: bytes | None

    @property
    def is_one(self) -> bool:
        """Whether anything changes."""
        return self.before != self.after

    def diff(self) -> str:
        """The change as a unified diff."""
        sides = (self.before, self.after)
        old, new = ((side or b"").decode("utf-8", "replace").splitlines(keepends=True) for side in sides)
        was, will = ("/dev/null" if side is None else str(self.path) for side in sides)
        lines = difflib.unified_diff(old, new, was, will)
        return "".join(line if line.endswith("\n") else line + "\n" for line in lines)


def program(home: Path) -> hooks.Program:
    """What clients on this machine are to run for a home: this interpreter, this package."""
    package = Path(files.__file__).absolute().parent
    return hooks.Program(sys.executable, str(package / "__main__.py"), str(home))


def settings_path(client: str, user_home: Path, environment: Callable[[str], str | None]) -> Path:
    """The file of a client that we change; a link to it is followed."""
    root = dict(places.roots(user_home, environment))[client]
    if client == "opencode":
        root = places.root_of(user_home, environment, *_OPENCODE)
    return (root / _FILES[client]).resolve()


def install(client: str, path: Path, what: hooks.Program) -> Change:
    """The change that sets a client up. Raises ClientFault where the file is not understood."""
    before = _content(path)
    if client in _EXTENSIONS:
        if before is not None and _LINE.encode() not in before:
            raise ClientFault(f"{path} is no extension of ours")
        return Change(path, before, extension(client, what).encode())
    text = _text(before, path)
    settings = hooks.parsed(text, str(path))
    wanted = hooks.installed(settings, client, what)
    return Change(path, before, before if wanted == settings else hooks.rendered(wanted, like=text).encode())


def uninstall(client: str, path: Path) -> Change:
    """The change that takes us out: back to the bytes that were there, where nothing else has changed since."""
    before = _content(path)
    if before is None:
        return Change(path, None, None)
    if client in _EXTENSIONS:
        return Change(path, before, None if command_of_extension(before) else before)
    text = _text(before, path)
    settings = hooks.parsed(text, str(path))
    without = hooks.removed(settings)
    if without == settings:
        return Change(path, before, before)
    kept = _content(_kept(path))
    if kept is not None and _same(kept, without):
        return Change(path, before, kept)
    return Change(path, before, hooks.rendered(without, like=text).encode() if without or kept is not None else None)


def install_server(client: str, path: Path, what: servers.Server) -> Change:
    """The change that puts our MCP server into a client's settings. Raises ClientFault."""
    before = _content(path)
    after = servers.installed(client, _text(before, path), what, str(path))
    return Change(path, before, before if after == _text(before, path) else after.encode())


def uninstall_server(client: str, path: Path) -> Change:
    """The change that takes our MCP server out again. Raises ClientFault."""
    before = _content(path)
    text = _text(before, path)
    left = servers.removed(client, text, str(path)) if before is not None else text
    return Change(path, before, before if left == text else left.encode())


def apply(change: Change, *, keep: bool) -> None:
    """Write a change. keep: put what was there beside it, unless that was done before; otherwise drop what was kept,
    unless hooks of ours are left in the file.

    Raises Busy when the file has changed meanwhile, ReadOnlyHome or DiskFull when it cannot be written.
    """
    if _content(change.path) != change.before:
        raise Busy(str(change.path))
    kept = _kept(change.path)
    if change.after is None:
        change.path.unlink(missing_ok=True)
    else:
        if keep and change.before is not None and not _is_ours(change.before) and change.path.suffix == ".json":
            _write(kept, change.before, change.path)
        _write(change.path, change.after, change.path)
    if not keep and (change.after is None or not _is_ours(change.after)):
        kept.unlink(missing_ok=True)


def commands(client: str, path: Path) -> dict[str, str]:
    """Event -> command that the client was set up with; empty when it was not. Raises ClientFault."""
    raw = _content(path)
    if raw is None:
        return {}
    if client in _EXTENSIONS:
        line = command_of_extension(raw)
        return {_ASKED[client]: line} if line else {}
    return hooks.found(hooks.parsed(_text(raw, path), str(path)))


def extension(client: str, what: hooks.Program) -> str:
    """The extension of pi, or the plugin of OpenCode, told what to run."""
    rows = Path(__file__).with_name(_EXTENSIONS[client]).read_text(encoding="utf-8").splitlines(keepends=True)
    at = next(i for i, row in enumerate(rows) if row.startswith(_LINE))
    line = [what.python, "-IS", what.hook, client, "--home", what.home]
    rows[at] = f"{rows[at].partition(' = ')[0]} = {json.dumps(line)};\n"
    return "".join(rows)


def command_of_extension(raw: bytes) -> str:
    """The command in an installed extension, as a line for a shell; "" for a file that is none of ours."""
    for row in raw.decode("utf-8", "replace").splitlines():
        if row.startswith(_LINE):
            words = json.loads(row.partition(" = ")[2].rstrip("; "))
            return shlex.join(words) if words else ""
    return ""


def _is_ours(raw: bytes) -> bool:
    return hooks.MARK.encode() in raw


def _same(raw: bytes, settings: hooks.Json) -> bool:
    try:
        return bool(json.loads(raw or b"{}") == settings)
    except ValueError:
        return False


def _kept(path: Path) -> Path:
    return path.with_name(path.name + _KEPT)


def _content(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def _text(raw: bytes | None, path: Path) -> str:
    try:
        return (raw or b"").decode("utf-8")
    except UnicodeDecodeError as error:
        raise ClientFault(f"{path} is no UTF-8") from error


def _write(path: Path, data: bytes, like: Path) -> None:
    """Replace a file in one step, with the mode that it had."""
    files.make_folder(path.parent)
    mode = like.stat().st_mode & 0o777 if like.exists() else 0o600
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    files.write(temporary, data)
    with files.faults(path):
        temporary.chmod(mode)
        temporary.replace(path)
    files.sync_folder(path.parent)
