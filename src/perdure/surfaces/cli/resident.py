"""Commands of the resident home: serve, service, jobs, why."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from perdure import schedule
from perdure.archive import injected
from perdure.archive.journal import Event
from perdure.capture import wire
from perdure.capture.rules import Rules
from perdure.config import home_path, user_home
from perdure.errors import AlreadyServing, NotFound, PerdureError, UsageError
from perdure.home import Home
from perdure.jobs import cron, post
from perdure.jobs.book import Book, Envelope
from perdure.resident import clock, serve, service
from perdure.surfaces.cli import aside
from perdure.surfaces.cli.common import Shell, ago, command, day, plural
from perdure.surfaces.page.listener import Listener

_START_S = 30.0  # so long may a resident home take until it answers
_STOP_S = 20.0
_HISTORY = 20

# serve ----------------------------------------------------------------------------------------------------------


@command(
    "serve",
    epilog="""\
  perdure serve                 in this terminal, until Ctrl-C
  perdure serve --detach        in the background
  perdure serve --stop""",
)
@click.option("--detach", is_flag=True, help="Start it in the background, and return when it answers.")
@click.option("--stop", is_flag=True, help="End the one that is running.")
def serve_command(shell: Shell, detach: bool, stop: bool) -> None:
    """Hold this home in memory: answer hooks at once, archive and index what they capture, run the jobs. Everything
    works without it, only slower; ending it, in whatever way, loses nothing.
    """
    if stop:
        _stop(shell)
    elif detach:
        _detach(shell)
    elif (thin := shell.thin()) is not None:
        aside.watch(thin.home)
        _send_on(shell, thin)
    else:
        with shell.open(create=True) as home:
            aside.watch(home.path)
            serving = serve.Serving(home)
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, lambda *_: serving.stopped.set())
            listener = Listener(serving)
            serving.page = listener.page
            with contextlib.closing(listener):
                serving.run(ready=lambda: _say_where(shell, home.path, listener))


def _say_where(shell: Shell, home: Path, listener: Listener) -> None:
    """Say what is served, and to who looks at a terminal where its page is, or how to have one."""
    address = listener.start()
    shell.err.print(f"serving {home}" + (f" at {address}" if address else ""), markup=False)
    if shell.err.is_terminal:
        shell.err.print(f"its page: {listener.page() if address else '`perdure page`'}", markup=False, soft_wrap=True)


def _send_on(shell: Shell, thin: Rules) -> None:
    """Serve a machine that keeps nothing itself: send what waits to its home."""
    from perdure.resident.shipping import Shipping

    shipping = Shipping(thin.home)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: shipping.stop())
    shipping.run(ready=lambda: shell.err.print(f"sending to {thin.remote.url}", markup=False))


def _stop(shell: Shell) -> None:
    home = home_path(shell.home)
    who = post.resident(home)
    if who is not None:
        try:
            wire_said = wire.ask(home, {"op": "stop"}, timeout_s=5)
        except (OSError, ValueError) as error:
            raise PerdureError(
                f"process {who.pid} does not answer; `kill {who.pid}` ends it, and loses nothing"
            ) from error
        ends_s = time.monotonic() + _STOP_S
        while post.resident(home) is not None and time.monotonic() < ends_s:
            time.sleep(0.05)
        if not wire_said.get("ok") or post.resident(home) is not None:
            raise PerdureError(f"process {who.pid} does not end")
    if shell.as_json:
        shell.answer({"stopped": who.pid if who else None})
    else:
        shell.out.print(f"Stopped (process {who.pid})." if who else "No resident home is running.")


def _detach(shell: Shell) -> None:
    home = home_path(shell.home)
    if (who := post.resident(home)) is not None:
        raise AlreadyServing(f"process {who.pid}")
    state = begun(home)
    if shell.as_json:
        shell.answer({"pid": state["pid"], "since_at": state["since_at"], "http": state["http"]})
    else:
        where = f" at {state['http']}" if state["http"] else ""
        shell.out.print(f"Serving {home}{where} (process {state['pid']}).", markup=False)


def begun(home: Path) -> dict[str, Any]:
    """What a new resident home of this home, in the background, says when it answers. Raises PerdureError."""
    words = [sys.executable, "-m", "perdure.surfaces.cli", "serve", "--home", str(home)]
    said = aside.opened(home)
    try:
        quiet = subprocess.DEVNULL
        child = subprocess.Popen(words, stdin=quiet, stdout=quiet, stderr=said, start_new_session=True)
    finally:
        os.close(said)
    return _awaited(home, child)


def _awaited(home: Path, child: subprocess.Popen[bytes]) -> dict[str, Any]:
    """What the new resident home says when it answers. Raises PerdureError when it ends instead."""
    ends_s = time.monotonic() + _START_S
    while time.monotonic() < ends_s:
        if child.poll() is not None:
            said = aside.path_of(home).read_text("utf-8", "replace").strip()
            raise PerdureError(said.removeprefix("perdure: ") or "it ended at once")
        try:
            return wire.ask(home, {"op": "health"}, timeout_s=1)
        except (OSError, ValueError):
            time.sleep(0.05)
    raise PerdureError(f"process {child.pid} does not answer after {_START_S:.0f} s")


# service --------------------------------------------------------------------------------------------------------


@command(
    "service",
    epilog="""\
  perdure service status
  perdure service install --dry-run      show what would be written and run
  perdure service install
  perdure service uninstall""",
)
@click.argument("action", type=click.Choice(["install", "uninstall", "status"]))
@click.option("--dry-run", is_flag=True, help="Only show what would be written and run.")
def service_command(shell: Shell, action: str, dry_run: bool) -> None:
    """Have the system run `perdure serve` for you from login on (a systemd user unit, or a launchd agent on macOS)."""
    found = service.here(home_path(shell.home), user_home())
    if action == "status":
        _say_service(shell, found)
        return
    commands = found.load if action == "install" else found.unload
    failed: list[tuple[str, ...]] = []
    if not dry_run:
        failed = service.install(found) if action == "install" else service.uninstall(found)
    if shell.as_json:
        shell.answer(
            {
                "path": str(found.path), "content": found.content, "commands": list(map(shlex.join, commands)),
                "dry_run": dry_run, "failed": list(map(shlex.join, failed)),
            }
        )  # fmt: skip
    else:
        _show_change(shell, found, action, commands, dry_run=dry_run)
    if failed:
        raise PerdureError(f"the file is in its place, but `{shlex.join(failed[0])}` failed; run it to see why")


def _show_change(
    shell: Shell, found: service.Service, action: str, commands: tuple[tuple[str, ...], ...], *, dry_run: bool
) -> None:
    would = "would be " if dry_run else ""
    shell.out.print(f"{found.path} {would}{'written' if action == 'install' else 'deleted'}", markup=False)
    if action == "install":
        shell.out.print(found.content, style="dim", markup=False)
    for words in commands:
        shell.out.print(f"$ {shlex.join(words)}", markup=False)


def _say_service(shell: Shell, found: service.Service) -> None:
    is_installed = found.path.exists()
    is_running = is_installed and service.run(found.ask) == 0
    if shell.as_json:
        shell.answer({"path": str(found.path), "installed": is_installed, "running": is_running})
    elif is_installed:
        shell.out.print(f"{found.path}: {'running' if is_running else 'installed, not running'}", markup=False)
    else:
        shell.out.print("Not installed.")


# jobs -----------------------------------------------------------------------------------------------------------


@command(
    "jobs",
    epilog="""\
  perdure jobs                     what runs when, and how it last went
  perdure jobs run sweep           now, in this process
  perdure jobs pause pack
  perdure jobs resume pack
  perdure jobs history sweep""",
)
@click.argument("action", type=click.Choice(["list", "run", "pause", "resume", "history"]), default="list")
@click.argument("name", required=False)
def jobs_command(shell: Shell, action: str, name: str | None) -> None:
    """The jobs that the resident home runs by the clock. When is set in config.toml: `jobs.NAME`, a cron expression."""
    with shell.open() as home:
        if action == "list":
            _list_jobs(shell, home)
            return
        if name is None:
            raise UsageError(f"which job? `perdure jobs {action} NAME`")
        schedule.job(name)
        if action == "run":
            _run_job(shell, home, name)
        elif action == "history":
            _show_history(shell, home, name)
        else:
            _switch_job(shell, home, action, name)


def _list_jobs(shell: Shell, home: Home) -> None:
    book, now = Book(home.path), datetime.now().astimezone()
    paused, when = book.paused(), schedule.when(home.config.jobs)
    rows: list[dict[str, Any]] = []
    for job in schedule.JOBS:
        last = book.settle(job.name)
        runs = when[job.name] and job.name not in paused
        following = cron.next_at(when[job.name], now) if runs else None
        rows.append(
            {
                "job": job.name, "does": job.does, "when": when[job.name], "missed": job.missed,
                "paused": job.name in paused, "next_at": following, "last": _plain(last, home.user) if last else None,
            }
        )  # fmt: skip
    is_served = post.resident(home.path) is not None
    if shell.as_json:
        shell.answer({"jobs": rows, "served": is_served})
        return
    for row in rows:
        state = "paused" if row["paused"] else row["when"] or "never"
        shell.out.print(f"{row['job']:<9} {state:<13} {row['does']}", markup=False)
        if row["last"]:
            shell.out.print(f"{'':<9} {_told(row['last'], now)}", style="dim", markup=False)
    if not is_served:
        shell.note("No resident home is running, so none of them runs by itself: `perdure serve`.")


def _run_job(shell: Shell, home: Home, name: str) -> None:
    done = clock.run(home, name, trigger="person")
    if shell.as_json:
        shell.answer(_plain(done, home.user))
    else:
        shell.out.print(f"{name}: {done.result}, {done.why} ({done.took_ms:.0f} ms)", markup=False)
    if done.result in ("failed", "busy"):
        sys.exit(1)


def _show_history(shell: Shell, home: Home, name: str) -> None:
    found = [_plain(item, home.user) for item in Book(home.path).history(name)[-_HISTORY:]]
    if shell.as_json:
        shell.answer({"job": name, "runs": found})
        return
    now = datetime.now(UTC)
    for item in found:
        shell.out.print(_told(item, now), markup=False)
    if not found:
        shell.out.print(f"{name} has not done anything yet.")


def _switch_job(shell: Shell, home: Home, action: str, name: str) -> None:
    if action == "pause":
        Book(home.path).pause(name)
        text = f"{name} is paused until `perdure jobs resume {name}`."
    else:
        was = Book(home.path).resume(name)
        text = f"{name} runs by the clock again." if was else f"{name} was not paused."
    if shell.as_json:
        shell.answer({"job": name, "paused": action == "pause"})
    else:
        shell.out.print(text)


def _plain(envelope: Envelope, user: str) -> dict[str, Any]:
    """A run as this user may see it; `n_users`: how many it was done for, 0 where it was done for the whole home."""
    seen = {name: value for name, value in vars(envelope.seen_by(user)).items() if name != "by_user"}
    return {**seen, "n_users": len(envelope.by_user), "result_of_all": envelope.result}


def _told(item: dict[str, Any], now: datetime) -> str:
    took = "" if item["result"] == "running" else f" ({item['took_ms'] / 1000:.1f} s)"
    return f"{ago(item['started_at'], now)}, by {item['trigger']}: {item['result']}{took} {item['why']}".rstrip()


# why ------------------------------------------------------------------------------------------------------------


@command(
    "why",
    epilog="""\
  perdure why                      what was put beside the last message, and why
  perdure why --session 5f0c       beside the last one of a session
  perdure why --json""",
)
@click.option("--session", help="Of this session (the beginning of its id is enough).")
def why_command(shell: Shell, session: str | None) -> None:
    """The last recall that went into a session: what was chosen, why, and what it cost in time and tokens."""
    with shell.open() as home:
        event = _last(home, session)
        found = {**event.data, "at": event.happened_at, "cues": [_cue(home, c) for c in event.data["cues"]]}
    if shell.as_json:
        shell.answer(found)
        return
    who = f"{found['runtime']} session {found['session']}" + (f", agent {found['agent']}" if found["agent"] else "")
    cost = f"{found['n_tokens']} tokens, {found['n_chars']} characters, {found['took_ms']:.0f} ms"
    shell.out.print(f"{day(found['at'])} · {who}", style="bold", markup=False)
    shell.out.print(f"{plural(len(found['cues']), 'cue')}, {cost} ({_steps(found['timings_ms'])})", markup=False)
    if found["degraded"]:
        shell.note(f"Without: {', '.join(found['degraded'])}.")
    for cue in found["cues"]:
        shell.out.print(f"\n{_short(cue['turn'])}  score {cue['score']:.2f}, {_steps(cue['legs'])}", markup=False)
        shell.out.print(f"  {cue['text'] or '(no longer there)'}", style="dim", markup=False)


def _last(home: Home, session: str | None) -> Event:
    """The last injection (into a session). Raises NotFound."""
    for event in reversed(home.journal().read(type_=injected.TYPE)):
        if not injected.is_floor(event) and str(event.data["session"]).startswith(session or ""):
            return event
    raise NotFound(f"no recall into session {session}" if session else "no recall into any session yet")


def _cue(home: Home, reason: dict[str, Any]) -> dict[str, Any]:
    """A reason with the beginning of the turn as it is now, which may have been forgotten."""
    try:
        text = home.preview(reason["turn"])
    except PerdureError:
        text = ""
    return {**reason, "text": text}


def _short(name: str) -> str:
    """Enough of a turn's id to find it by; the whole of a memory's."""
    return name if name.startswith("mem-") else name[:8]


def _steps(values: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:g}" for name, value in values.items())
