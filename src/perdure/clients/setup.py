"""Put Perdure into a client's settings and take it out again: first plan a change, then write it in one step.

A change is the whole content of a file before and after. It is written only while the file still holds
the bytes that the change was made from. A copy of the old file is kept beside it, and comes back, byte
for byte, when Perdure is taken out again.
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

from perdure import disk
from perdure.capture import transcripts
from perdure.clients import entries, toml_hooks
from perdure.errors import Busy, ClientFault

CLIENTS = ("claude-code", "codex", "pi", "gemini-cli", "opencode", "qwen-code", "kimi-code")
_SETTINGS_FILES = {
    "claude-code": "settings.json",
    "codex": "hooks.json",
    "pi": "extensions/perdure.ts",
    "gemini-cli": "settings.json",
    "opencode": "plugin/perdure.js",
    "qwen-code": "settings.json",
    "kimi-code": "config.toml",
}
_OPENCODE_ROOT = (".config/opencode", "XDG_CONFIG_HOME/opencode")  # its transcripts are elsewhere
_EXTENSIONS = {"pi": "pi.ts", "opencode": "opencode.js"}  # client -> our file that is installed there
_PROMPT_EVENTS = {"pi": "before_agent_start", "opencode": "chat.message"}  # the event that represents all of them
_TOML_CLIENTS = ("kimi-code",)  # have their hooks in a file of TOML
_COPY_SUFFIX = ".before-perdure"
_COPIED_SUFFIXES = (".json", ".toml")  # files of which a copy is kept
_OWN_TABLES = ("hooks", "mcpServers", "mcp")  # they hold our entries; an empty one counts as missing
_COMMAND_START = "const COMMAND"


@dataclass(frozen=True)
class SettingsChange:
    """One file of a client, before and after. None: there is no file."""

    path: Path
    before: bytes | None
    after: bytes | None

    @property
    def has_effect(self) -> bool:
        """True if the change alters anything."""
        return self.before != self.after

    def diff(self) -> str:
        """Return the change as a unified diff."""
        sides = (self.before, self.after)
        old_lines, new_lines = ((side or b"").decode("utf-8", "replace").splitlines(keepends=True) for side in sides)
        old_name, new_name = ("/dev/null" if side is None else str(self.path) for side in sides)
        lines = difflib.unified_diff(old_lines, new_lines, old_name, new_name)
        return "".join(line if line.endswith("\n") else line + "\n" for line in lines)


def make_program(home: Path) -> entries.HookProgram:
    """Return what clients on this machine run for a home: this interpreter, this package."""
    package = Path(transcripts.__file__).absolute().parent
    return entries.HookProgram(sys.executable, str(package / "__main__.py"), str(home))


def find_client_settings(client: str, user_home: Path, environment: Callable[[str], str | None]) -> Path:
    """Return the file of a client that we change; a link to it is followed."""
    root = dict(transcripts.list_roots(user_home, environment))[client]
    if client == "opencode":
        root = transcripts.resolve_root(user_home, environment, *_OPENCODE_ROOT)
    return (root / _SETTINGS_FILES[client]).resolve()


def plan_install(client: str, path: Path, hook_program: entries.HookProgram) -> SettingsChange:
    """Return the change that sets a client up. Raises ClientFault where the file is not understood."""
    before = _read_content(path)
    if client in _EXTENSIONS:
        if before is not None and _COMMAND_START.encode() not in before:
            raise ClientFault(f"{path} is not an extension of Perdure")
        return SettingsChange(path, before, render_extension(client, hook_program).encode())
    text = _decode_text(before, path)
    new_text = _add_hooks(client, text, hook_program.home, path)
    return SettingsChange(path, before, before if new_text == text else _encode_text(new_text, before))


def _add_hooks(client: str, text: str, home: str, path: Path) -> str:
    if client in _TOML_CLIENTS:
        return toml_hooks.add_hooks(text, client, home, str(path))
    settings = entries.parse_settings(text, str(path))
    new_settings = entries.add_hooks(settings, client, home)
    return text if new_settings == settings else entries.render_settings(new_settings, original=text)


def _remove_hooks(client: str, text: str, path: Path) -> str:
    if client in _TOML_CLIENTS:
        return toml_hooks.remove_hooks(text, str(path))
    settings = entries.parse_settings(text, str(path))
    remaining = entries.remove_hooks(settings)
    return text if remaining == settings else entries.render_settings(remaining, original=text)


def write_script(hook_program: entries.HookProgram) -> None:
    """Write the script in the home that the hooks of clients run; it serves all of them."""
    path = Path(entries.to_script_path(hook_program.home))
    text = entries.render_script(hook_program).encode()
    if _read_content(path) != text:
        _write_with_mode(path, text, path)


def plan_uninstall(client: str, path: Path, *, earlier_change: SettingsChange | None = None) -> SettingsChange:
    """Return the change that takes us out: back to the original bytes, if nothing else has changed since.

    earlier_change: a change that is made with it; two changes of the same file become one.
    """
    before, current = _read_start(path, earlier_change)
    if current is None:
        return SettingsChange(path, before, None)
    if client in _EXTENSIONS:
        return SettingsChange(path, before, None if parse_extension_command(current) else current)
    text = _decode_text(current, path)
    remaining_text = _remove_hooks(client, text, path)
    return SettingsChange(
        path, before, current if remaining_text == text else _restore_content(path, current, remaining_text)
    )


def plan_install_server(
    client: str, path: Path, server_command: entries.ServerCommand, *, earlier_change: SettingsChange | None = None
) -> SettingsChange:
    """Return the change that puts our MCP server into a client's settings. Raises ClientFault.

    earlier_change: as for `plan_uninstall`.
    """
    before, current = _read_start(path, earlier_change)
    text = _decode_text(current, path)
    new_text = entries.add_server(client, text, server_command, str(path))
    return SettingsChange(path, before, current if new_text == text else _encode_text(new_text, current))


def plan_uninstall_server(client: str, path: Path) -> SettingsChange:
    """Return the change that takes our MCP server out again. Raises ClientFault where its file is not understood."""
    before = _read_content(path)
    if before is None or entries.SERVER_MARK.encode() not in before:
        return SettingsChange(path, before, before)
    text = _decode_text(before, path)
    remaining_text = entries.remove_server(client, text, str(path))
    return SettingsChange(
        path, before, before if remaining_text == text else _restore_content(path, before, remaining_text)
    )


def apply_change(change: SettingsChange, *, keep_copy: bool) -> None:
    """Write a change, if it changes anything.

    keep_copy: keep the old file beside the new one, unless that was done before; otherwise delete the copy,
    unless something of ours is left in the file.
    Raises Busy when the file has changed meanwhile, ReadOnlyHome or DiskFull when it cannot be written.
    """
    if change.has_effect:
        _write_change(change, keep_copy=keep_copy)
    if not keep_copy and (change.after is None or not _is_own_file(change.after)):
        _to_copy_path(change.path).unlink(missing_ok=True)


def _write_change(change: SettingsChange, *, keep_copy: bool) -> None:
    if _read_content(change.path) != change.before:
        raise Busy(str(change.path))
    if change.after is None:
        change.path.unlink(missing_ok=True)
        return
    if (
        keep_copy
        and change.before is not None
        and not _is_own_file(change.before)
        and change.path.suffix in _COPIED_SUFFIXES
    ):
        _write_with_mode(_to_copy_path(change.path), change.before, change.path)
    _write_with_mode(change.path, change.after, change.path)


def _read_start(path: Path, earlier_change: SettingsChange | None) -> tuple[bytes | None, bytes | None]:
    """Return (the bytes in the file, the bytes after the earlier change of it)."""
    if earlier_change is not None and earlier_change.path == path:
        return earlier_change.before, earlier_change.after
    content = _read_content(path)
    return content, content


def _restore_content(path: Path, current: bytes, remaining_text: str) -> bytes | None:
    """Return the content to restore on uninstall, or None to delete a file that we created.

    The copy is restored only if it means the same as the remaining text.
    """
    copied = _read_content(_to_copy_path(path))
    remaining = _encode_text(remaining_text, current)
    if copied is None:
        return remaining if remaining_text.strip() not in ("", "{}") else None
    return copied if _normalize(copied, path) == _normalize(remaining, path) else remaining


def read_commands(client: str, path: Path) -> dict[str, str]:
    """Return event -> command that the client was set up with; empty when it was not. Raises ClientFault."""
    raw = _read_content(path)
    if raw is None:
        return {}
    if client in _EXTENSIONS:
        command = parse_extension_command(raw)
        return {_PROMPT_EVENTS[client]: command} if command else {}
    text = _decode_text(raw, path)
    if client in _TOML_CLIENTS:
        return toml_hooks.find_commands(text, str(path))
    return entries.find_commands(entries.parse_settings(text, str(path)))


def read_server_command(client: str, path: Path) -> list[str]:
    """Return the command of our MCP server in a client's settings; empty without one. Raises ClientFault."""
    raw = _read_content(path)
    if raw is None or entries.SERVER_MARK.encode() not in raw:
        return []
    return entries.get_command(client, _decode_text(raw, path), str(path))


def render_extension(client: str, hook_program: entries.HookProgram) -> str:
    """Return the extension of pi, or the plugin of OpenCode, with the command to run."""
    rows = Path(__file__).with_name(_EXTENSIONS[client]).read_text(encoding="utf-8").splitlines(keepends=True)
    index = next(i for i, row in enumerate(rows) if row.startswith(_COMMAND_START))
    arguments = [hook_program.python, "-IS", hook_program.hook, client, "--home", hook_program.home]
    rows[index] = f"{rows[index].partition(' = ')[0]} = {json.dumps(arguments)};\n"
    return "".join(rows)


def parse_extension_command(raw: bytes) -> str:
    """Return the command in an installed extension, as a line for a shell; "" for a file that is not ours."""
    for row in raw.decode("utf-8", "replace").splitlines():
        if row.startswith(_COMMAND_START):
            words = json.loads(row.partition(" = ")[2].rstrip("; "))
            return shlex.join(words) if words else ""
    return ""


def _is_own_file(raw: bytes) -> bool:
    return entries.HOOK_MARK.encode() in raw or entries.SERVER_MARK.encode() in raw


def _normalize(raw: bytes, path: Path) -> object:
    """Return the meaning of settings without blanks and empty tables; a unique object where they cannot be read."""
    if path.suffix == ".toml":
        return [line.rstrip() for line in raw.splitlines() if line.strip()]
    try:
        settings = json.loads(raw.strip() or b"{}")
        settings = {
            name: _drop_empty_lists(value) if name in _OWN_TABLES else value for name, value in settings.items()
        }
    except (ValueError, AttributeError):
        return object()
    return json.dumps(
        {name: value for name, value in settings.items() if name not in _OWN_TABLES or value}, sort_keys=True
    )


def _drop_empty_lists(table: object) -> object:
    return {name: value for name, value in table.items() if value != []} if isinstance(table, dict) else table


def _to_copy_path(path: Path) -> Path:
    return path.with_name(path.name + _COPY_SUFFIX)


def _read_content(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def _decode_text(raw: bytes | None, path: Path) -> str:
    """Return the text of settings, with the line ends of Unix if all are those of Windows. Raises ClientFault."""
    try:
        text = (raw or b"").decode("utf-8")
    except UnicodeDecodeError as error:
        raise ClientFault(f"{path} is not UTF-8") from error
    return text.replace("\r\n", "\n") if _is_of_windows(raw) else text


def _encode_text(text: str, original: bytes | None) -> bytes:
    """Return the bytes of settings, with the line ends of the original."""
    return (text.replace("\n", "\r\n") if _is_of_windows(original) else text).encode()


def _is_of_windows(raw: bytes | None) -> bool:
    return raw is not None and raw.count(b"\r\n") == raw.count(b"\n") > 0


def _write_with_mode(path: Path, data: bytes, mode_source: Path) -> None:
    """Replace a file in one step, with the mode of `mode_source`."""
    disk.make_folder(path.parent)
    mode = mode_source.stat().st_mode & 0o777 if mode_source.exists() else 0o600
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    disk.write_file(temporary, data)
    with disk.map_os_errors(path):
        temporary.chmod(mode)
        temporary.replace(path)
    disk.sync_folder(path.parent)
