"""Commands of the resident home: serve, service; and the log of a home that is served in the
background.

The log `run/serve.log` holds what a background process would write to a terminal. Only its owner can read
it, and it never becomes large. It exists as long as the process, so that writes to standard error have
somewhere to go.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import click

from perdure import disk
from perdure.capture import events, failures
from perdure.capture.policy import CaptureRules
from perdure.config import find_home_path, find_user_home
from perdure.errors import AlreadyServing, ServiceFault
from perdure.service import lock, unit
from perdure.surfaces.cli.common import Shell, command

MAX_LOG_BYTES = 1_000_000
_CHECK_EVERY_S = 60.0


def get_log_path(home: Path) -> Path:
    """Return the path of the log."""
    return home / "run" / "serve.log"


def open_log(home: Path) -> int:
    """Create an empty log; return its descriptor, for the process that starts."""
    disk.make_folder(home / "run")
    descriptor = os.open(get_log_path(home), os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o600)
    os.fchmod(descriptor, 0o600)
    return descriptor


def is_stderr_logged(home: Path) -> bool:
    """Return True if the standard error of this process goes to the log."""
    with contextlib.suppress(OSError, ValueError):
        return os.path.samestat(os.fstat(sys.stderr.fileno()), get_log_path(home).stat())
    return False


def limit_log_size(path: Path) -> None:
    """Empty the log if it has become too large."""
    with contextlib.suppress(OSError):
        if path.stat().st_size > MAX_LOG_BYTES:
            os.truncate(path, 0)


def watch_log(home: Path) -> None:
    """Keep the log small as long as this process lives; do nothing in a process that does not write to it."""
    if is_stderr_logged(home):
        threading.Thread(target=_check_log_size, args=(get_log_path(home),), name="perdure-aside", daemon=True).start()


def _check_log_size(path: Path) -> None:
    pause = threading.Event()
    while not pause.wait(_CHECK_EVERY_S):
        limit_log_size(path)


_START_LIMIT_S = 30.0  # limit for the first answer of a new resident home
_STOP_LIMIT_S = 20.0

# serve ----------------------------------------------------------------------------------------------------------


@command(
    "serve",
    epilog="""\
  perdure serve                 in this terminal, until Ctrl-C
  perdure serve --detach        in the background
  perdure serve --http 127.0.0.1:8790   at another address than `server.http`
  perdure serve --stop""",
)
@click.option("--detach", is_flag=True, help="Start in the background, and return when the home answers.")
@click.option("--stop", is_flag=True, help="Stop the running resident home.")
@click.option("--http", metavar="HOST:PORT", default="", help="Answer over HTTP here, instead of `server.http`.")
def serve_command(shell: Shell, detach: bool, stop: bool, http: str) -> None:
    """Run the resident home: it answers hooks at once, archives and indexes captures, and runs the jobs. Perdure also
    works without it, but slower. You can stop it at any time; no capture is lost.
    """
    if stop:
        _stop_resident(shell)
    elif detach:
        _start_detached(shell, http)
    elif (rules := shell.load_thin_rules()) is not None:
        watch_log(rules.home)
        _serve_thin_machine(shell, rules)
    else:
        from perdure.surfaces.cli.serve_home import serve_home  # what a thin machine has not, and need not load

        with shell.open_home(create=True) as home:
            watch_log(home.path)
            serve_home(home, http=http)


def _serve_thin_machine(shell: Shell, rules: CaptureRules) -> None:
    """Serve a thin machine: send what waits to its home."""
    from perdure.service.outbox_sender import OutboxSender  # it speaks http, which a home of one's own need not load

    shipping = OutboxSender(rules.home)
    for signal_number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signal_number, lambda *_: shipping.stop())
    shipping.run(on_ready=lambda: shell.err.print(f"sending to {rules.remote.url}", markup=False))


def _stop_resident(shell: Shell) -> None:
    home = find_home_path(shell.home)
    resident = lock.find_resident(home)
    if resident is not None:
        deadline_s = time.monotonic() + _STOP_LIMIT_S
        while lock.find_resident(home) is not None and time.monotonic() < deadline_s:
            with contextlib.suppress(OSError, ValueError):  # it may end before it answers
                events.ask_resident(home, {"op": "stop"}, timeout_s=5)
            time.sleep(0.05)
        if lock.find_resident(home) is not None:
            raise ServiceFault(f"process {resident.pid} does not end; run `kill {resident.pid}`; no data is lost")
    if events.has_resident_died(home):
        events.to_holder_path(home).unlink(missing_ok=True)
        failures.end_incident(home, "resident")
    if shell.as_json:
        shell.print_json({"stopped": resident.pid if resident else None})
    else:
        shell.out.print(f"Stopped (process {resident.pid})." if resident else "No resident home is running.")


def _start_detached(shell: Shell, http: str) -> None:
    home = find_home_path(shell.home)
    if (resident := lock.find_resident(home)) is not None:
        raise AlreadyServing(f"process {resident.pid}")
    state = start_in_background(home, http=http)
    if shell.as_json:
        shell.print_json({"pid": state["pid"], "since_at": state["since_at"], "http": state["http"]})
    else:
        address_text = f" at {state['http']}" if state["http"] else ""
        shell.out.print(f"Serving {home}{address_text} (process {state['pid']}).", markup=False)


def start_in_background(home: Path, *, http: str = "") -> dict[str, Any]:
    """Start a resident home in the background; return what it says when it answers. Raises PerdureError."""
    words = [sys.executable, "-m", "perdure.surfaces.cli", "serve", "--home", str(home), "--http", http]
    log_descriptor = open_log(home)
    try:
        devnull = subprocess.DEVNULL
        process = subprocess.Popen(words, stdin=devnull, stdout=devnull, stderr=log_descriptor, start_new_session=True)
    finally:
        os.close(log_descriptor)
    return _wait_until_ready(home, process)


def _wait_until_ready(home: Path, process: subprocess.Popen[bytes]) -> dict[str, Any]:
    """Wait until the new resident home answers; return what it says. Raises PerdureError if it ends or takes too
    long.
    """
    deadline_s = time.monotonic() + _START_LIMIT_S
    while time.monotonic() < deadline_s:
        if process.poll() is not None:
            log_text = get_log_path(home).read_text("utf-8", "replace").strip()
            raise ServiceFault(log_text.removeprefix("perdure: ") or "it ended at once")
        try:
            return events.ask_resident(home, {"op": "health"}, timeout_s=1)
        except (OSError, ValueError):
            time.sleep(0.05)
    raise ServiceFault(f"process {process.pid} does not answer after {_START_LIMIT_S:.0f} s")


# service --------------------------------------------------------------------------------------------------------


@command(
    "service",
    epilog="""\
  perdure service status
  perdure service install --dry-run      show the file and the commands only
  perdure service install
  perdure service uninstall""",
)
@click.argument("action", type=click.Choice(["install", "uninstall", "status"]))
@click.option("--dry-run", is_flag=True, help="Only show the file and the commands; change nothing.")
def service_command(shell: Shell, action: str, dry_run: bool) -> None:
    """Start `perdure serve` automatically after login (a systemd user unit, or a launchd agent on macOS)."""
    system_service = unit.describe_local_unit(find_home_path(shell.home), find_user_home())
    if action == "status":
        _print_service_state(shell, system_service)
        return
    commands = system_service.load_commands if action == "install" else system_service.unload_commands
    failed: list[tuple[str, ...]] = []
    if not dry_run:
        failed = unit.install(system_service) if action == "install" else unit.uninstall(system_service)
    if shell.as_json:
        shell.print_json(
            {
                "path": str(system_service.path),
                "content": system_service.content,
                "commands": list(map(shlex.join, commands)),
                "dry_run": dry_run,
                "failed": list(map(shlex.join, failed)),
            }
        )
    else:
        _print_service_change(shell, system_service, action, commands, dry_run=dry_run)
    if failed:
        raise ServiceFault(
            f"the file is written, but `{shlex.join(failed[0])}` failed; run this command to see the reason"
        )


def _print_service_change(
    shell: Shell,
    system_service: unit.ServiceUnit,
    action: str,
    commands: tuple[tuple[str, ...], ...],
    *,
    dry_run: bool,
) -> None:
    would = "would be " if dry_run else ""
    shell.out.print(f"{system_service.path} {would}{'written' if action == 'install' else 'deleted'}", markup=False)
    if action == "install":
        shell.out.print(system_service.content, style="dim", markup=False)
    for words in commands:
        shell.out.print(f"$ {shlex.join(words)}", markup=False)


def _print_service_state(shell: Shell, system_service: unit.ServiceUnit) -> None:
    is_installed = system_service.path.exists()
    is_running = is_installed and unit.run_command(system_service.status_command) == 0
    if shell.as_json:
        shell.print_json({"path": str(system_service.path), "installed": is_installed, "running": is_running})
    elif is_installed:
        shell.out.print(f"{system_service.path}: {'running' if is_running else 'installed, not running'}", markup=False)
    else:
        shell.out.print("Not installed.")
