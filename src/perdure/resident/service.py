"""The resident home as a service of the user's own: a systemd user unit, or a launchd agent on macOS.

Writes one file and has the system's own tool load it; both are shown. Nothing needs root.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

from perdure.capture.files import make_folder, replace
from perdure.errors import UnsupportedPlatform, UsageError

LABEL = "org.perdure.home"
_UNIT = """\
[Unit]
Description=Perdure, the resident home in {home}

[Service]
ExecStart={command}
Restart=on-failure
RestartSec=5
Nice=5

[Install]
WantedBy=default.target
"""
_AGENT = """\
<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" "http://www.apple.com/DTDs/PropertyList-1.0.dtd">
<plist version="1.0">
<dict>
  <key>Label</key><string>{label}</string>
  <key>ProgramArguments</key>
  <array>{arguments}</array>
  <key>RunAtLoad</key><true/>
  <key>KeepAlive</key><dict><key>SuccessfulExit</key><false/></dict>
  <key>ProcessType</key><string>Background</string>
</dict>
</plist>
"""

Run = Callable[[Sequence[str]], int]


@dataclass(frozen=True)
class Service:
    """What is written, and what loads and unloads it."""

    path: Path
    content: str
    load: tuple[tuple[str, ...], ...]
    unload: tuple[tuple[str, ...], ...]
    ask: tuple[str, ...]  # exit status 0 when it runs


def run(command: Sequence[str]) -> int:
    """Run a command of the system; its exit status, 127 where it is not there."""
    try:
        return subprocess.run(command, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE).returncode
    except OSError:
        return 127


def describe(platform: str, user_home: Path, home: Path, python: str) -> Service:
    """The service of a home on this platform. Raises UnsupportedPlatform, UsageError for a path that is no text."""
    arguments = (python, "-m", "perdure.surfaces.cli", "serve", "--home", str(home))
    if any(not argument.isprintable() for argument in arguments):
        raise UsageError(f"{home}: a service file cannot name this path")
    if platform == "darwin":
        return _launchd(user_home, arguments)
    if platform.startswith("linux"):
        return _systemd(user_home, home, arguments)
    raise UnsupportedPlatform(platform)


def _systemd(user_home: Path, home: Path, arguments: Sequence[str]) -> Service:
    name = "perdure.service"
    content = _UNIT.format(home=str(home).replace("%", "%%"), command=" ".join(map(_quoted, arguments)))
    user = ("systemctl", "--user")
    return Service(
        user_home / ".config/systemd/user" / name, content,
        load=((*user, "daemon-reload"), (*user, "enable", "--now", name)),
        unload=((*user, "disable", "--now", name),),
        ask=(*user, "is-active", "--quiet", name),
    )  # fmt: skip


def _quoted(argument: str) -> str:
    """An argument as systemd reads it: quoted, `%` and `$` doubled.

    >>> _quoted('/home/a b/100%')
    '"/home/a b/100%%"'
    """
    plain = argument.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{plain}"'


def _launchd(user_home: Path, arguments: Sequence[str]) -> Service:
    path = user_home / "Library/LaunchAgents" / f"{LABEL}.plist"
    listed = "".join(f"<string>{escape(argument)}</string>" for argument in arguments)
    return Service(
        path, _AGENT.format(label=LABEL, arguments=listed),
        load=(("launchctl", "load", "-w", str(path)),),
        unload=(("launchctl", "unload", "-w", str(path)),),
        ask=("launchctl", "list", LABEL),
    )  # fmt: skip


def here(home: Path, user_home: Path) -> Service:
    """The service of a home on this machine, by this Python."""
    return describe(sys.platform, user_home, home, sys.executable)


def install(service: Service, run_: Run = run) -> list[tuple[str, ...]]:
    """Write the file and load it; returns the commands that failed."""
    make_folder(service.path.parent)
    replace(service.path, service.content.encode())
    return [command for command in service.load if run_(command) != 0]


def uninstall(service: Service, run_: Run = run) -> list[tuple[str, ...]]:
    """Unload it and delete the file; returns the commands that failed."""
    failed = [command for command in service.unload if run_(command) != 0]
    service.path.unlink(missing_ok=True)
    return failed
