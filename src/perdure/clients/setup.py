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
_SETTINGS = (".json", ".toml")  # of which a copy is kept
_TABLES = ("hooks", "mcpServers", "mcp")  # in which we stand; empty they are as good as none
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


def uninstall(client: str, path: Path, *, on: Change | None = None) -> Change:
    """The change that takes us out: back to the bytes that were there, where nothing else has changed since.

    on: a change that is made with it; of the same file, both become one.
    """
    before, now = _start(path, on)
    if now is None:
        return Change(path, before, None)
    if client in _EXTENSIONS:
        return Change(path, before, None if command_of_extension(now) else now)
    text = _text(now, path)
    settings = hooks.parsed(text, str(path))
    without = hooks.removed(settings)
    return Change(path, before, now if without == settings else _back(path, hooks.rendered(without, like=text)))


def install_server(client: str, path: Path, what: servers.Server, *, on: Change | None = None) -> Change:
    """The change that puts our MCP server into a client's settings; `on` as for uninstall. Raises ClientFault."""
    before, now = _start(path, on)
    text = _text(now, path)
    after = servers.installed(client, text, what, str(path))
    return Change(path, before, now if after == text else after.encode())


def uninstall_server(client: str, path: Path) -> Change:
    """The change that takes our MCP server out again. Raises ClientFault where it is in what is not understood."""
    before = _content(path)
    if before is None or servers.MARK.encode() not in before:
        return Change(path, before, before)
    text = _text(before, path)
    left = servers.removed(client, text, str(path))
    return Change(path, before, before if left == text else _back(path, left))


def apply(change: Change, *, keep: bool) -> None:
    """Write a change, if it is one. keep: put what was there beside it, unless that was done before; otherwise drop
    what was kept, unless something of ours is left in the file.

    Raises Busy when the file has changed meanwhile, ReadOnlyHome or DiskFull when it cannot be written.
    """
    if change.is_one:
        _applied(change, keep=keep)
    if not keep and (change.after is None or not _is_ours(change.after)):
        _kept(change.path).unlink(missing_ok=True)


def _applied(change: Change, *, keep: bool) -> None:
    if _content(change.path) != change.before:
        raise Busy(str(change.path))
    if change.after is None:
        change.path.unlink(missing_ok=True)
        return
    if keep and change.before is not None and not _is_ours(change.before) and change.path.suffix in _SETTINGS:
        _write(_kept(change.path), change.before, change.path)
    _write(change.path, change.after, change.path)


def _start(path: Path, on: Change | None) -> tuple[bytes | None, bytes | None]:
    """(what is in the file, what will be once the change before ours is made)."""
    if on is not None and on.path == path:
        return on.before, on.after
    content = _content(path)
    return content, content


def _back(path: Path, left: str) -> bytes | None:
    """What a file comes back to: what was kept, if that says what is left. None: we made it, and it is empty."""
    kept = _content(_kept(path))
    if kept is None:
        return left.encode() if left.strip() not in ("", "{}") else None
    return kept if _meaning(kept, path) == _meaning(left.encode(), path) else left.encode()


def commands(client: str, path: Path) -> dict[str, str]:
    """Event -> command that the client was set up with; empty when it was not. Raises ClientFault."""
    raw = _content(path)
    if raw is None:
        return {}
    if client in _EXTENSIONS:
        line = command_of_extension(raw)
        return {_ASKED[client]: line} if line else {}
    return hooks.found(hooks.parsed(_text(raw, path), str(path)))


def server_command(client: str, path: Path) -> list[str]:
    """The command of our MCP server in a client's settings; empty when it is not there. Raises ClientFault."""
    raw = _content(path)
    if raw is None or servers.MARK.encode() not in raw:
        return []
    return servers.command_of(client, _text(raw, path), str(path))


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
    return hooks.MARK.encode() in raw or servers.MARK.encode() in raw


def _meaning(raw: bytes, path: Path) -> object:
    """What settings say, whatever their blanks and empty tables; nothing that equals it where they are none."""
    if path.suffix == ".toml":
        return [line.rstrip() for line in raw.splitlines() if line.strip()]
    try:
        said = json.loads(raw.strip() or b"{}")
        said = {name: _filled(value) if name in _TABLES else value for name, value in said.items()}
    except (ValueError, AttributeError):
        return object()
    return json.dumps({name: value for name, value in said.items() if name not in _TABLES or value}, sort_keys=True)


def _filled(table: object) -> object:
    return {name: value for name, value in table.items() if value != []} if isinstance(table, dict) else table


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
