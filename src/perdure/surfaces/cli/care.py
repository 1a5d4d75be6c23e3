"""Commands that look after a home: status, doctor, verify, rebuild, pack."""

from __future__ import annotations

import shutil
import sys
import tomllib
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
from rich.text import Text

from perdure import config as settings
from perdure.capture import outbox, places
from perdure.clients import hooks, servers, setup
from perdure.errors import Busy, ClientFault, IndexFault, ModelFault
from perdure.home import Home
from perdure.index import catchup, store
from perdure.memories.tally import tally
from perdure.resident import serve
from perdure.surfaces import condition
from perdure.surfaces.checks import Check, Grade, address, resident_line
from perdure.surfaces.cli import roundtrip
from perdure.surfaces.cli.common import Shell, command, day, plural, progress, size
from perdure.surfaces.cli.page import bill_json

_SPARK = "▁▂▃▄▅▆▇█"
_DAYS = 14


# status -------------------------------------------------------------------------------------------------------


@command("status", epilog="  perdure status\n  perdure status --json")
def status_command(shell: Shell) -> None:
    """What this home holds, how much disk it takes, how it grows, and what is waiting."""
    if (thin := shell.thin()) is not None:
        from perdure.surfaces.cli import thin_care  # which needs what stands here

        thin_care.status(shell, thin)
        return
    with shell.open() as home:
        found = _status(home)
    if shell.as_json:
        shell.answer(found, next_actions=[("perdure doctor", "check that everything works")])
        return
    _print_status(shell, found)


def _status(home: Home) -> dict[str, Any]:
    ledger, now = home.archive.ledger, datetime.now(UTC)
    n_runs, n_sources, n_bytes = ledger.counts()
    waiting = outbox.backlog(home.path / "outbox")
    since_s = int(now.timestamp()) - (_DAYS - 1) * 86400
    pause = home.paused()
    return {
        "home": str(home.path), "user": home.user, "machine": home.config.machine, "writable": home.writable,
        "runs": n_runs, "sources": n_sources, "captured_bytes": n_bytes,
        "disk": condition.disk(home.path),
        "disk_free_bytes": shutil.disk_usage(home.path).free,
        "growth": [{"day": d, "runs": r, "bytes": b} for d, r, b in ledger.growth(since_s)],
        "index": _index_status(home),
        "memories": _memory_status(home),
        "floor": bill_json(home.layers(cwd=str(Path.cwd()))),
        "vectors": _vector_status(home),
        "resident": (state := serve.state(home.path)),
        "http": address(home.config.server, state) or None,
        "machines": len(home.machines.listed()),
        "outbox": {"files": waiting.n_files, "bytes": waiting.n_bytes, "oldest_at": waiting.oldest_at},
        "paused": {"since_at": pause.since_at, "until_at": pause.until_at} if pause else None,
    }  # fmt: skip


def _index_status(home: Home) -> dict[str, Any]:
    try:
        index = home.index()
        return {
            "state": "ready", "runs_behind": catchup.behind(index, home.archive),
            "turns": index.rows("SELECT count(*) FROM turn")[0][0],
            "chunks": index.rows("SELECT count(*) FROM chunk")[0][0],
            "by_runtime": dict(index.rows(
                "SELECT value, n_chunks FROM name WHERE kind = 'runtime' AND n_chunks > 0 ORDER BY value")),
        }  # fmt: skip
    except IndexFault as error:
        return {"state": error.code, "advice": str(error)}


def _memory_status(home: Home) -> dict[str, Any]:
    try:
        return {"state": "ready", **vars(tally(home.memories.listed(every=True)))}
    except (IndexFault, Busy) as error:
        return {"state": error.code}


def _vector_status(home: Home) -> dict[str, Any]:
    try:
        found = home.vector_status()
    except IndexFault as error:
        return {"state": error.code}
    slabs = [vars(slab) for slab in found.slabs]
    return {"state": "ready", **vars(found), "slabs": slabs}


def _print_status(shell: Shell, found: dict[str, Any]) -> None:
    held = f"{plural(found['runs'], 'run')} from {plural(found['sources'], 'source')}"
    rows = [
        ("home", f"{found['home']} ({found['user']} @{found['machine']}{'' if found['writable'] else ', read-only'})"),
        ("archive", f"{held}, {size(found['captured_bytes'])} captured"),
        ("on disk", ", ".join(f"{name} {size(n)}" for name, n in found["disk"].items() if n) or "nothing yet"),
        ("free", size(found["disk_free_bytes"])),
        ("growth", _growth(found["growth"])),
        ("index", _index_line(found["index"])),
        ("memories", _memory_line(found["memories"])),
        ("floor", _floor_line(found["floor"])),
        *(("vectors", line) for line in _vector_lines(found["vectors"])),
        ("outbox", _outbox_line(found["outbox"])),
        ("resident", resident_line(found["resident"])),
        ("http", _http_line(found["http"], found["resident"])),
        ("machines", f"{found['machines']:,} may speak here: `perdure machine list`" if found["machines"] else ""),
        ("paused", _paused_line(found["paused"])),
    ]
    for name, value in rows:
        if value:
            shell.out.print(Text(f"{name:>8}  ", style="bold") + Text(value))


def _memory_line(memories: dict[str, Any]) -> str:
    if memories["state"] != "ready":
        return ""
    counts = (
        ("current", "n_current"),
        ("superseded", "n_superseded"),
        ("retired", "n_retired"),
        ("pinned", "n_pinned"),
    )
    said = ", ".join(f"{memories[name]:,} {what}" for what, name in counts if memories[name])
    times = (("last kept", memories["kept_at"]), ("last mined", memories["mined_at"]))
    return "; ".join(
        [said or "none yet: `perdure remember` keeps one", *(f"{what} {day(at)}" for what, at in times if at)]
    )


def _floor_line(bill: dict[str, Any]) -> str:
    """What every session begins with, part by part, in tokens."""
    parts = ", ".join(f"{layer['name']} {layer['tokens']:,}" for layer in bill["layers"] if layer["tokens"])
    alerts = f"; {plural(len(bill['alerts']), 'alert')}: `perdure floor`" if bill["alerts"] else ""
    return f"{plural(bill['total']['tokens'], 'token')}: {parts}{alerts}" if parts or alerts else ""


def _index_line(index: dict[str, Any]) -> str:
    if index["state"] != "ready":
        return str(index["advice"])
    behind = f"{plural(index['runs_behind'], 'run')} behind" if index["runs_behind"] else "up to date"
    return f"{plural(index['turns'], 'turn')}, {plural(index['chunks'], 'chunk')}, {behind}"


def _vector_lines(vectors: dict[str, Any]) -> list[str]:
    """A line for each model that has vectors here, one for what waits, one for what is amiss."""
    if vectors["state"] != "ready":
        return []
    lines = [_slab_line(slab) for slab in vectors["slabs"]] or ["none yet: `perdure embed` makes them"]
    waiting = [f"{lane} {n:,}" for lane, n in vectors["depth"].items() if n]
    if waiting:
        since = "" if vectors["waiting_s"] is None else f", the oldest capture for {vectors['waiting_s']:,.0f} s"
        lines.append(f"waiting: {', '.join(waiting)}{since}")
    return [*lines, vectors["notice"]]


def _slab_line(slab: dict[str, Any]) -> str:
    refused = f", {slab['n_refused']:,} that the model refuses" if slab["n_refused"] else ""
    use = "answers" if slab["answers"] else "answers when complete"
    name = slab["tag"].partition("#")[0]
    return f"{name}: {plural(slab['n_embedded'], 'chunk')}, {slab['n_missing']:,} missing{refused}, {use}"


def _outbox_line(waiting: dict[str, Any]) -> str:
    if not waiting["files"]:
        return ""
    return f"{plural(waiting['files'], 'capture')} waiting, {size(waiting['bytes'])}, since {day(waiting['oldest_at'])}"


def _paused_line(pause: dict[str, Any] | None) -> str:
    if pause is None:
        return ""
    return f"until {day(pause['until_at'])}" if pause["until_at"] else "until `perdure resume`"


def _http_line(address: str | None, resident: dict[str, Any] | None) -> str:
    """Where the home answers, and whether it does."""
    if not address:
        return ""
    return address if resident and resident.get("http") else f"{address}, once `perdure serve` runs"


def _growth(days: list[dict[str, Any]]) -> str:
    if not days:
        return f"nothing captured in the last {_DAYS} days"
    most = max(item["bytes"] for item in days)
    bars = "".join(_SPARK[item["bytes"] * (len(_SPARK) - 1) // most] for item in days)
    return f"{bars}  {size(sum(item['bytes'] for item in days))} on {plural(len(days), 'day')} of the last {_DAYS}"


# doctor -------------------------------------------------------------------------------------------------------


@command("doctor", epilog="  perdure doctor\n  perdure doctor --json")
def doctor_command(shell: Shell) -> None:
    """Check everything that capture and search depend on, the data path by a real write, search and forget.
    Exit status 1 when something is broken.
    """
    if (thin := shell.thin()) is not None:
        from perdure.surfaces.cli import thin_care  # which needs what stands here

        checks = list(thin_care.checks(thin))
    else:
        with shell.open(create=True) as home:
            checks = [check for examine in _EXAMINED for check in condition.examined(examine, home)]
    broken = any(check.grade == "problem" for check in checks)
    if shell.as_json:
        shell.answer({"healthy": not broken, "checks": [vars(check) for check in checks]})
    else:
        marks: dict[Grade, tuple[str, str]] = {"ok": ("✓", "green"), "notice": ("!", "yellow"), "problem": ("✗", "red")}
        for check in checks:
            mark, style = marks[check.grade]
            shell.out.print(Text(f"{mark} ", style=style) + Text(f"{check.name}: ", style="bold") + Text(check.found))
            if check.advice:
                shell.out.print(f"    {check.advice}", style="dim", markup=False)
    if broken:
        sys.exit(1)


def _held_back(home: Home) -> Iterator[Check]:
    found = home.held_back(cwd=str(Path.cwd()))
    if found:
        where = ", ".join(dict.fromkeys(one.where for one in found))
        said = f"{plural(len(found), 'text')} kept from models as a likely order to them: {where}"
        yield Check(
            "scanner", "notice", said, "`perdure floor alerts` shows them, `perdure floor allow` lets one through"
        )
    else:
        yield Check("scanner", "ok", "nothing is kept from models")


def _data_path(home: Home) -> Iterator[Check]:
    took_s = home.probe()
    yield Check("data path", "ok", f"write, archive, index, search and forget work ({took_s * 1000:.0f} ms)")


def _index(home: Home) -> Iterator[Check]:
    if store.current(home.path) is not None:
        try:
            with home.index().writing():
                pass
        except Busy:
            advice = "another process is stuck in the index: find it (`lsof`) and end it; nothing captured is at risk"
            yield Check("index", "problem", f"its write lock could not be had within {store.BUSY_MS // 1000} s", advice)
            return
    yield from condition.index(home)


def _embedder(home: Home) -> Iterator[Check]:
    """A real call, as a search makes it."""
    vectors = home.vectors()
    if vectors.tag is None:
        yield Check("embedder", "notice", vectors.chosen.notice or "none")
        return
    try:
        tag, answer = vectors.check()
    except ModelFault as error:
        yield Check("embedder", "problem", str(error), "words are still found; see docs/configuration.md")
        return
    took = f"waited {answer.queued_ms:.0f} ms, took {answer.compute_ms:.0f} ms"
    grade: Grade = "notice" if vectors.chosen.notice else "ok"
    yield Check("embedder", grade, f"{tag} answers ({took})", vectors.chosen.notice)


def _resident(home: Home) -> Iterator[Check]:
    yield from condition.resident(home, serve.state(home.path))


def _others(home: Home) -> Iterator[Check]:
    """Where other machines reach this home, and how many may; nothing for a home that is for itself alone."""
    state, n_machines = serve.state(home.path), len(home.machines.listed())
    said = _http_line(address(home.config.server, state), state)
    if said:
        is_up = bool(state and state.get("http"))
        advice = "" if is_up else "`perdure serve` answers there"
        yield Check("http", "ok" if is_up else "notice", said, advice)
    if n_machines or said:
        yield Check("machines", "ok", f"{plural(n_machines, 'machine')} may speak here")


def _clients(home: Home) -> Iterator[Check]:
    for runtime, root in places.roots(settings.user_home(), settings.environment):
        if root.exists():
            n_files = sum(1 for name, _ in places.find(settings.user_home(), settings.environment) if name == runtime)
            yield Check(runtime, "ok", f"{plural(n_files, 'transcript')} in {root}")
    if home.paused():
        yield Check("capture", "notice", "paused", "`perdure resume` ends that")


def _set_ups(home: Home) -> Iterator[Check]:
    """A real round trip through the hooks of every client that is set up."""
    for client in setup.CLIENTS:
        path = setup.settings_path(client, settings.user_home(), settings.environment)
        try:
            commands = setup.commands(client, path)
            if commands:
                yield from _set_up(home, client, path, commands)
        except ClientFault as fault:
            yield Check(f"{client} hooks", "problem", fault.detail, f"`perdure install {client} --dry-run` shows more")


def _set_up(home: Home, client: str, path: Path, commands: dict[str, str]) -> Iterator[Check]:
    place = hooks.home_of(next(iter(commands.values())))
    if place != str(home.path):
        yield Check(f"{client} hooks", "notice", f"they write to {place}", f"`perdure install {client}` changes that")
    took_s = roundtrip.prove(client, commands, home.path)
    yield Check(f"{client} hooks", "ok", f"captured a turn and recalled it ({took_s * 1000:.0f} ms, without `serve`)")
    if client == "codex" and not _is_trusted(path):
        yield Check("codex hooks", "problem", "Codex does not run them yet", "in Codex, type /hooks and trust them")


def _tools(home: Home) -> Iterator[Check]:  # noqa: ARG001
    """Whether the MCP server of every client that was given one can start."""
    for client in servers.CLIENTS:
        path = servers.settings_path(client, settings.user_home(), settings.environment)
        again = f"`perdure install {client} --mcp` sets it up again"
        try:
            line = setup.server_command(client, path)
        except ClientFault as fault:
            yield Check(f"{client} tools", "problem", fault.detail, again)
            continue
        if line and shutil.which(line[0]):
            yield Check(f"{client} tools", "ok", f"in {path}")
        elif line:
            yield Check(f"{client} tools", "problem", f"{line[0]} does not run", again)


def _is_trusted(path: Path) -> bool:
    """Whether Codex was told to trust the hook for messages in this file."""
    try:
        table = tomllib.loads(path.with_name("config.toml").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    states = table.get("hooks", {}).get("state", {}) if isinstance(table.get("hooks"), dict) else {}
    return any(str(key).startswith(f"{path}:user_prompt_submit:") for key in states)


_EXAMINED: tuple[Callable[[Home], Iterator[Check]], ...] = (
    condition.place,
    _data_path,
    _index,
    _embedder,
    condition.waiting,
    _resident,
    _others,
    condition.answers,
    _held_back,
    condition.freshness,
    condition.mining,
    _clients,
    _set_ups,
    _tools,
    condition.hook_failures,
)


# verify, rebuild, pack ----------------------------------------------------------------------------------------


@command("verify", epilog="  perdure verify && echo whole")
def verify_command(shell: Shell) -> None:
    """Read every byte of the archive and check it: hashes, line ranges, journal order, packs, permissions.
    Exit status 1 when something is lost or at risk; what to do is said for each finding.
    """
    with shell.open(read_only=True) as home, progress(shell, "verifying", home.archive.ledger.counts()[0]) as step:
        found = home.verify(progress=lambda n, _: step(n))
    if shell.as_json:
        shell.answer(
            {
                "ok": found.ok, "runs": found.n_runs, "packs": found.n_packs, "bytes": found.n_bytes,
                "events": found.n_events, "digest": found.digest, "findings": [vars(f) for f in found.findings],
            }
        )  # fmt: skip
    else:
        for item in found.findings:
            style = "red" if item.severity == "problem" else "yellow"
            shell.out.print(Text(f"{item.severity}: ", style=style) + Text(f"{item.where}: {item.what}"))
            shell.out.print(f"    {item.advice}", style="dim", markup=False)
        counts = ((found.n_runs, "run"), (found.n_packs, "pack"), (found.n_events, "event"))
        what = ", ".join([*(plural(n, noun) for n, noun in counts), size(found.n_bytes)])
        shell.out.print(f"{'Whole' if found.ok else 'DAMAGED'}: {what} checked. Digest {found.digest[:16]}.")
    if not found.ok:
        sys.exit(1)


@command("rebuild", epilog="  perdure rebuild")
def rebuild_command(shell: Shell) -> None:
    """Make a new index beside the old one, prove that both answer the same, and swap. The old one answers until
    then; interrupted, a rebuild goes on where it was.
    """
    with shell.open() as home:
        _, _, total = home.archive.ledger.counts()
        with progress(shell, "indexing", total, in_bytes=True) as step:
            done = home.rebuild(progress=lambda _, n: step(n))
    same = not done.differing and done.same_digest
    if shell.as_json:
        shell.answer({**vars(done), "same": same})
        return
    shell.out.print(
        f"{plural(done.n_runs, 'run')}, {plural(done.n_chunks, 'chunk')} indexed{' (resumed)' if done.resumed else ''}."
    )
    if not done.compared:
        shell.out.print("There was no readable index to compare with.")
    elif same:
        shell.out.print(f"Proven: {done.n_queries} queries answered the same, digests equal.")
        if done.differing_vectors:
            shell.note(f"Vectors answer otherwise near {plural(len(done.differing_vectors), 'chunk')}.")
    else:
        shell.note(
            f"The new index differs from the old one (it now follows the archive): {', '.join(done.differing[:3])}"
        )
    for run_id in done.damaged:
        shell.note(f"run {run_id} cannot be read and is not indexed: see `perdure verify`")


@command("pack", epilog="  perdure pack\n  perdure pack --idle-days 7")
@click.option("--idle-days", type=click.IntRange(0, 36500), help="Pack conversations idle for so long (default 30).")
def pack_command(shell: Shell, idle_days: int | None) -> None:
    """Put the runs of each idle conversation into one compressed file. Everything stays found, shown and verified."""
    with shell.open() as home, progress(shell, "packing", None) as step:
        n_packs, n_runs = home.pack(idle_days=idle_days, progress=lambda n, _: step(n))
    if shell.as_json:
        shell.answer({"packs": n_packs, "runs": n_runs})
    else:
        shell.out.print(f"{plural(n_runs, 'run')} packed into {plural(n_packs, 'file')}.")
