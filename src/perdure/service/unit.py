"""The resident home as a service of the user: a systemd user unit, or a launchd agent on macOS.

Writes one file and lets the system's own tool load it; both are shown. Nothing needs root. systemd also starts a
process again that hangs: one that has not called `report_alive` for WATCHDOG_S. launchd only starts one that has ended.
"""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from perdure.disk import make_folder, replace_file
from perdure.environ import read_variable
from perdure.errors import UnsupportedPlatform, UsageError

LABEL = "org.perdure.home"
WATCHDOG_S = 600  # without a sign of life, before systemd ends the process and starts it again
_SYSTEMD_UNIT = """\
[Unit]
Description=Perdure, the resident home in {home}

[Service]
ExecStart={command}
Restart=on-failure
RestartSec=5
NotifyAccess=main
WatchdogSec={watchdog_s}
Nice=5

[Install]
WantedBy=default.target
"""
_LAUNCHD_AGENT = """\
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

CommandRunner = Callable[[Sequence[str]], int]


@dataclass(frozen=True)
class ServiceUnit:
    """The file of a service, and the commands that load and unload it."""

    path: Path
    content: str
    load_commands: tuple[tuple[str, ...], ...]
    unload_commands: tuple[tuple[str, ...], ...]
    status_command: tuple[str, ...]  # exit status 0 if it is running


def run_command(command: Sequence[str]) -> int:
    """Run a system command; return its exit status, 127 if the command does not exist."""
    try:
        return subprocess.run(command, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE).returncode
    except OSError:
        return 127


def describe_unit(platform: str, user_home: Path, home: Path, python: str) -> ServiceUnit:
    """Describe a home's service on this platform.

    Raises UnsupportedPlatform, and UsageError for an unprintable path.
    """
    arguments = (python, "-m", "perdure.surfaces.cli", "serve", "--home", str(home))
    if any(not argument.isprintable() for argument in arguments):
        raise UsageError(f"{home}: a service file cannot name this path")
    if platform == "darwin":
        return _describe_launchd(user_home, arguments)
    if platform.startswith("linux"):
        return _describe_systemd(user_home, home, arguments)
    raise UnsupportedPlatform(platform)


def _describe_systemd(user_home: Path, home: Path, arguments: Sequence[str]) -> ServiceUnit:
    name = "perdure.service"
    content = _SYSTEMD_UNIT.format(
        home=str(home).replace("%", "%%"),
        command=" ".join(map(_quote_argument, arguments)),
        watchdog_s=WATCHDOG_S,
    )
    systemctl = ("systemctl", "--user")
    return ServiceUnit(
        user_home / ".config/systemd/user" / name,
        content,
        load_commands=((*systemctl, "daemon-reload"), (*systemctl, "enable", "--now", name)),
        unload_commands=((*systemctl, "disable", "--now", name),),
        status_command=(*systemctl, "is-active", "--quiet", name),
    )


def _quote_argument(argument: str) -> str:
    """Quote an argument for systemd; `%` and `$` are doubled.

    >>> _quote_argument('/home/a b/100%')
    '"/home/a b/100%%"'
    """
    escaped = argument.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{escaped}"'


def _describe_launchd(user_home: Path, arguments: Sequence[str]) -> ServiceUnit:
    from xml.sax.saxutils import escape  # with it come http and ssl, which a resident home may never need

    path = user_home / "Library/LaunchAgents" / f"{LABEL}.plist"
    argument_xml = "".join(f"<string>{escape(argument)}</string>" for argument in arguments)
    return ServiceUnit(
        path,
        _LAUNCHD_AGENT.format(label=LABEL, arguments=argument_xml),
        load_commands=(("launchctl", "load", "-w", str(path)),),
        unload_commands=(("launchctl", "unload", "-w", str(path)),),
        status_command=("launchctl", "list", LABEL),
    )


def describe_local_unit(home: Path, user_home: Path) -> ServiceUnit:
    """Describe a home's service on this machine, run by this Python."""
    return describe_unit(sys.platform, user_home, home, sys.executable)


def report_alive() -> None:
    """Tell the watchdog of systemd that this process works; nothing happens where systemd did not start it."""
    address = read_variable("NOTIFY_SOCKET")
    if address:
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.sendto(b"WATCHDOG=1", address.replace("@", "\0", 1) if address.startswith("@") else address)


def install(unit: ServiceUnit, run: CommandRunner = run_command) -> list[tuple[str, ...]]:
    """Write the file and load it; return the commands that failed."""
    make_folder(unit.path.parent)
    replace_file(unit.path, unit.content.encode())
    return [command for command in unit.load_commands if run(command) != 0]


def uninstall(unit: ServiceUnit, run: CommandRunner = run_command) -> list[tuple[str, ...]]:
    """Unload the service and delete the file; return the commands that failed."""
    failed = [command for command in unit.unload_commands if run(command) != 0]
    unit.path.unlink(missing_ok=True)
    return failed
