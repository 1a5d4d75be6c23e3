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
import msgspec
from rich.text import Text

from perdure import config as settings
from perdure.capture import enqueue, session_file, transcripts
from perdure.clients import entries, setup
from perdure.errors import Busy, ClientFault, IndexFault, IndexMissing, ModelFault
from perdure.home import Home
from perdure.index import catchup, store
from perdure.index.statistics import measure_size
from perdure.memories.cue_use import count_memories
from perdure.service import health
from perdure.service.client import ask_health
from perdure.service.worker_list import list_workers
from perdure.surfaces import health_checks
from perdure.surfaces.cli import selftest
from perdure.surfaces.cli.common import Shell, command, format_count, format_size, format_time, show_progress
from perdure.surfaces.cli.floor_common import costs_to_json, kept_to_json
from perdure.surfaces.cli.import_ import describe_retentions
from perdure.surfaces.health_checks import Grade, HealthCheck, describe_resident, make_http_address
from perdure.surfaces.units import describe_recording, describe_saved, format_paragraphs

_SPARK_CHARS = "▁▂▃▄▅▆▇█"
_GROWTH_DAYS = 14
_MAX_EXAMINED = 2_000  # current memories among which clean-up proposals are looked for: about a second


# status -------------------------------------------------------------------------------------------------------


@command("status", epilog="  perdure status\n  perdure status --json")
def status_command(shell: Shell) -> None:
    """Show the size, the disk space, the growth and the queues of this home."""
    if (rules := shell.load_thin_rules()) is not None:
        from perdure.surfaces.cli import thin_status  # imports HTTP, which a local home does not need

        thin_status.print_thin_status(shell, rules)
        return
    with shell.open_home() as home:
        status = _collect_status(home)
    if shell.as_json:
        shell.print_json(status, next_actions=[("perdure doctor", "check that everything works")])
    else:
        _print_status(shell, status)
    if status["index"]["state"] not in ("ready", IndexMissing().code):  # a missing one is made at the next search
        sys.exit(1)


def _collect_status(home: Home) -> dict[str, Any]:
    ledger, now = home.archive.ledger, datetime.now(UTC)
    n_runs, n_sources, n_bytes = ledger.count_all()
    waiting, sessions = enqueue.measure_backlog(home.path / "outbox"), _read_session_status(home)
    since_s = int(now.timestamp()) - (_GROWTH_DAYS - 1) * 86400
    pause = home.captures.current_pause()
    return {
        "home": str(home.path),
        "user": home.user,
        "machine": home.config.machine,
        "writable": home.writable,
        "runs": n_runs,
        "sources": n_sources,
        "captured_bytes": n_bytes,
        "disk": health_checks.measure_disk_use(home.path),
        "disk_free_bytes": shutil.disk_usage(home.path).free,
        "growth": [
            {"day": first_day, "runs": n_day_runs, "bytes": n_day_bytes}
            for first_day, n_day_runs, n_day_bytes in ledger.count_by_day(since_s)
        ],
        "index": _read_index_status(home),
        "saved_sessions": _count_saved_sessions(home),
        "memories": _read_memory_status(home),
        "host_paragraphs": _count_paragraphs(home),
        "floor": costs_to_json(home.floor.layers(cwd=str(Path.cwd()))) | {"kept": kept_to_json(home.floor.list_kept())},
        "vectors": _read_vector_status(home),
        "pictures": health_checks.measure_pictures(home),
        "resident": (state := ask_health(home.path)),
        "http": make_http_address(home.config.server, state) or None,
        "machines": len(home.sharing.machines.list_machines()),
        "outbox": {"files": waiting.n_files, "bytes": waiting.n_bytes, "oldest_at": waiting.oldest_at},
        "sessions": sessions,
        "questions": health_checks.measure_probes(home),
        "shadow": {"recorded": len(home.memories.list_shadow_blocks())} if home.config.live.shadow else None,
        "paused": {"since_at": pause.since_at, "until_at": pause.until_at} if pause else None,
        **({"workers": msgspec.to_builtins(list_workers(home.path))} if home.config.workers.enabled else {}),
        **({"store": vars(store_status)} if (store_status := home.upkeep.store_status()) else {}),
    }


def _format_store(store_status: dict[str, Any]) -> str:
    counts = f"{format_count(store_status['n_objects'], 'object')}, {format_size(store_status['n_bytes'])}"
    waiting = [format_count(store_status["n_waiting_runs"], "run")] * bool(store_status["n_waiting_runs"])
    waiting += ["events"] * store_status["has_waiting_events"]
    return f"{store_status['address']}: {counts}" + (f"; {' and '.join(waiting)} wait" if waiting else "")


def _read_session_status(home: Home) -> dict[str, Any]:
    sessions = session_file.measure_open(home.path)
    return {
        "held": sessions.n_held,
        "left": sessions.n_left,
        "left_bytes": sessions.n_bytes,
        "since_at": sessions.since_at,
        "set_aside": [str(path) for path in sessions.aside_paths],
    }


def _read_index_status(home: Home) -> dict[str, Any]:
    try:
        index = home.index()
        size = measure_size(index)
        return {
            "state": "ready",
            "runs_behind": catchup.count_unprojected(index, home.archive),
            "turns": size.n_turns,
            "chunks": size.n_chunks,
            "by_runtime": size.chunks_by_runtime,
        }
    except IndexFault as error:
        is_empty = isinstance(error, IndexMissing) and home.archive.ledger.get_last_change() == 0
        return {"state": error.code, "advice": health_checks.NO_INDEX_YET if is_empty else str(error)}


def _count_saved_sessions(home: Home) -> int | None:
    try:
        return home.runs.count_saved_sessions()
    except (IndexFault, Busy):
        return None


def _read_memory_status(home: Home) -> dict[str, Any]:
    try:
        memories = home.memories.list_memories(every=True)
        counts = count_memories(memories)
        n_proposals = len(home.memories.proposals()) if counts.n_current <= _MAX_EXAMINED else None
        n_in_review = sum(memory.in_review for memory in memories)
        return {"state": "ready", **vars(counts), "n_in_review": n_in_review, "n_proposals": n_proposals}
    except (IndexFault, Busy) as error:
        return {"state": error.code}


def _count_paragraphs(home: Home) -> dict[str, int] | None:
    try:
        return home.runs.count_paragraphs()._asdict()
    except (IndexFault, Busy):
        return None


def _read_vector_status(home: Home) -> dict[str, Any]:
    try:
        status = home.upkeep.vector_status()
    except IndexFault as error:
        return {"state": error.code}
    slabs = list(map(msgspec.structs.asdict, status.slabs))
    return {"state": "ready", **msgspec.structs.asdict(status), "slabs": slabs}


def _print_status(shell: Shell, status: dict[str, Any]) -> None:
    counts = f"{format_count(status['runs'], 'run')} from {format_count(status['sources'], 'source')}"
    rows = [
        (
            "home",
            f"{status['home']} ({status['user']} @{status['machine']}{'' if status['writable'] else ', read-only'})",
        ),
        ("archive", f"{counts}, {format_size(status['captured_bytes'])} captured"),
        *([("store", _format_store(status["store"]))] if "store" in status else []),
        ("on disk", ", ".join(f"{name} {format_size(n)}" for name, n in status["disk"].items() if n) or "nothing yet"),
        ("free", format_size(status["disk_free_bytes"])),
        ("growth", _format_growth(status["growth"])),
        ("index", _format_index(status["index"])),
        *(("clients", line) for line in describe_retentions(status["index"].get("by_runtime", ()))),
        ("saved", describe_saved(status["saved_sessions"] or 0)),
        ("memories", _format_memories(status["memories"])),
        ("files", format_paragraphs(status["host_paragraphs"])),
        ("review", _format_review(status["memories"])),
        ("floor", _format_floor(status["floor"])),
        *(("vectors", line) for line in _format_vectors(status["vectors"])),
        ("pictures", health_checks.describe_pictures(status["pictures"])),
        ("outbox", _format_outbox(status["outbox"])),
        ("sessions", _format_sessions(status["sessions"])),
        ("resident", describe_resident(status["resident"])),
        *(("workers", line) for line in health_checks.describe_workers(status.get("workers"))),
        ("http", _format_http(status["http"], status["resident"])),
        *(("proxy", health_checks.describe_proxy(item)) for item in (status["resident"] or {}).get("proxies", ())),
        ("machines", f"{status['machines']:,} registered: `perdure machine list`" if status["machines"] else ""),
        ("asked", health_checks.describe_probes(status["questions"])),
        ("shadow", describe_recording(status["shadow"]["recorded"]) if status["shadow"] else ""),
        ("paused", _format_pause(status["paused"])),
    ]
    for name, value in rows:
        if value:
            shell.out.print(Text(f"{name:>8}  ", style="bold") + Text(value))


def _format_memories(memories: dict[str, Any]) -> str:
    if memories["state"] != "ready":
        return ""
    counts = (
        ("current", "n_current"),
        ("superseded", "n_superseded"),
        ("retired", "n_retired"),
        ("pinned", "n_pinned"),
    )
    parts = ", ".join(f"{memories[field]:,} {label}" for label, field in counts if memories[field])
    times = (("last kept", memories["kept_at"]), ("last mined", memories["mined_at"]))
    return "; ".join(
        [
            parts or "none yet: `perdure remember` stores one",
            *(f"{label} {format_time(instant)}" for label, instant in times if instant),
        ]
    )


def _format_review(memories: dict[str, Any]) -> str:
    """Format what waits for the owner's decision among the memories."""
    waiting = (
        ("drafted memory", memories.get("n_in_review"), "perdure memories review"),
        ("clean-up proposal", memories.get("n_proposals"), "perdure consolidate"),
    )
    return "; ".join(f"{format_count(n, noun)}: `{command_text}`" for noun, n, command_text in waiting if n)


def _format_floor(costs: dict[str, Any]) -> str:
    """Format the tokens that every session begins with, layer by layer."""
    parts = ", ".join(f"{layer['name']} {layer['tokens']:,}" for layer in costs["layers"] if layer["tokens"])
    alerts = f"; {format_count(len(costs['alerts']), 'alert')}: `perdure floor`" if costs["alerts"] else ""
    return f"{format_count(costs['total']['tokens'], 'token')}: {parts}{alerts}" if parts or alerts else ""


def _format_index(index: dict[str, Any]) -> str:
    if index["state"] != "ready":
        return str(index["advice"])
    behind = f"{format_count(index['runs_behind'], 'run')} behind" if index["runs_behind"] else "up to date"
    return f"{format_count(index['turns'], 'turn')}, {format_count(index['chunks'], 'chunk')}, {behind}"


def _format_vectors(vectors: dict[str, Any]) -> list[str]:
    """Format one line for each model that has vectors here, one for the waiting chunks and one for a problem."""
    if vectors["state"] != "ready":
        return []
    lines = [_format_slab(slab) for slab in vectors["slabs"]] or ["none yet: `perdure embed` makes them"]
    waiting = [f"{lane} {n:,}" for lane, n in vectors["depth"].items() if n]
    if waiting:
        age = "" if vectors["waiting_s"] is None else f", the oldest capture for {vectors['waiting_s']:,.0f} s"
        lines.append(f"waiting: {', '.join(waiting)}{age}")
    return [*lines, vectors["notice"]]


def _format_slab(slab: dict[str, Any]) -> str:
    refused = f", {slab['n_refused']:,} refused by the model" if slab["n_refused"] else ""
    readiness = "answers" if slab["answers"] else "used when complete"
    name = slab["tag"].partition("#")[0]
    return f"{name}: {format_count(slab['n_embedded'], 'chunk')}, {slab['n_missing']:,} missing{refused}, {readiness}"


def _format_outbox(waiting: dict[str, Any]) -> str:
    if not waiting["files"]:
        return ""
    return (
        f"{format_count(waiting['files'], 'capture')} waiting, {format_size(waiting['bytes'])}, "
        f"since {format_time(waiting['oldest_at'])}"
    )


def _format_sessions(sessions: dict[str, Any]) -> str:
    parts = [
        f"{sessions['held']:,} held by a process" if sessions["held"] else "",
        f"{sessions['left']:,} left by a killed process, since {format_time(sessions['since_at'])}"
        if sessions["left"]
        else "",
        f"{format_count(len(sessions['set_aside']), 'torn line')} set aside" if sessions["set_aside"] else "",
    ]
    return ", ".join(filter(None, parts))


def _format_pause(pause: dict[str, Any] | None) -> str:
    if pause is None:
        return ""
    return f"until {format_time(pause['until_at'])}" if pause["until_at"] else "until `perdure resume`"


def _format_http(address: str | None, resident: dict[str, Any] | None) -> str:
    """Format the address of the home, and say if it needs `perdure serve` to answer."""
    if not address:
        return ""
    return address if resident and resident.get("http") else f"{address}, once `perdure serve` runs"


def _format_growth(days: list[dict[str, Any]]) -> str:
    if not days:
        return f"nothing captured in the last {_GROWTH_DAYS} days"
    max_bytes = max(row["bytes"] for row in days)
    bars = "".join(_SPARK_CHARS[row["bytes"] * (len(_SPARK_CHARS) - 1) // max_bytes] for row in days)
    return (
        f"{bars}  {format_size(sum(row['bytes'] for row in days))} on "
        f"{format_count(len(days), 'day')} of the last {_GROWTH_DAYS}"
    )


# doctor -------------------------------------------------------------------------------------------------------


@command("doctor", epilog="  perdure doctor\n  perdure doctor --json")
def doctor_command(shell: Shell) -> None:
    """Check everything that capture and search need. A real write, search and forget checks the data path. Exit status
    1: something is broken.
    """
    if (rules := shell.load_thin_rules()) is not None:
        from perdure.surfaces.cli import thin_status  # imports HTTP, which a local home does not need

        checks = list(thin_status.check_thin_machine(rules))
    else:
        with shell.open_home(create=True) as home:
            checks = [check for run_checks in _CHECKS for check in health_checks.run_check(run_checks, home)]
    is_broken = any(check.grade == "problem" for check in checks)
    if shell.as_json:
        shell.print_json({"healthy": not is_broken, "checks": [vars(check) for check in checks]})
    else:
        marks: dict[Grade, tuple[str, str]] = {"ok": ("✓", "green"), "notice": ("!", "yellow"), "problem": ("✗", "red")}
        for check in checks:
            mark, style = marks[check.grade]
            shell.out.print(Text(f"{mark} ", style=style) + Text(f"{check.name}: ", style="bold") + Text(check.found))
            if check.advice:
                shell.out.print(f"    {check.advice}", style="dim", markup=False)
    if is_broken:
        sys.exit(1)


def _check_scanner(home: Home) -> Iterator[HealthCheck]:
    suspects = home.floor.list_held_back(cwd=str(Path.cwd()))
    if suspects:
        locations = ", ".join(dict.fromkeys(suspect.location for suspect in suspects))
        reads = "it reads" if len(suspects) == 1 else "they read"
        message = (
            f"{format_count(len(suspects), 'text')} left out of every context because {reads} "
            f"like an instruction to a model: {locations}"
        )
        yield HealthCheck(
            "scanner", "notice", message, "`perdure floor alerts` shows them, `perdure floor allow` allows one"
        )
    else:
        yield HealthCheck("scanner", "ok", "no text is left out")


def _check_data_path(home: Home) -> Iterator[HealthCheck]:
    if not home.writable:
        yield HealthCheck("data path", "notice", "not checked: that writes, and this home cannot be written")
        return
    took_s = health.run_probe(home)
    yield HealthCheck("data path", "ok", f"write, archive, index, search and forget work ({took_s * 1000:.0f} ms)")


def _check_index(home: Home) -> Iterator[HealthCheck]:
    if home.connections.has_index():
        try:
            with home.index().begin_write():
                pass
        except Busy:
            advice = "another process holds the index: find it (`lsof`) and end it; captured data is safe"
            yield HealthCheck(
                "index", "problem", f"its write lock was not free within {store.BUSY_MS // 1000} s", advice
            )
            return
        if damage := home.index().find_damage():
            yield HealthCheck("index", "problem", damage, "run `perdure rebuild`; the archive holds everything")
            return
        if home.index().is_wall_open():
            advice = "take a role that is no superuser and has no BYPASSRLS: docs/operating.md"
            yield HealthCheck("index", "problem", "row-level security does not hold for its role", advice)
    yield from health_checks.check_index(home)


def _check_embedder(home: Home) -> Iterator[HealthCheck]:
    """Check the embedder by a real call, the way a search calls it."""
    vectors = home.connections.vectors()
    if vectors.tag is None:
        yield HealthCheck("embedder", "notice", vectors.choice.notice or "none")
        return
    try:
        tag, answer = vectors.check_embedder()
    except ModelFault as error:
        yield HealthCheck("embedder", "problem", str(error), "keyword search still works; see docs/configuration.md")
        return
    timing = f"waited {answer.queued_ms:.0f} ms, took {answer.compute_ms:.0f} ms"
    grade: Grade = "notice" if vectors.choice.notice else "ok"
    yield HealthCheck("embedder", grade, f"{tag} answers ({timing})", vectors.choice.notice)


def _check_pictures(home: Home) -> Iterator[HealthCheck]:
    counts = health_checks.measure_pictures(home)
    if found := health_checks.describe_pictures(counts):
        grade: Grade = "notice" if counts["unread"] and counts["is_on"] and not counts["engine"] else "ok"
        yield HealthCheck("pictures", grade, found)


def _check_resident(home: Home) -> Iterator[HealthCheck]:
    state = ask_health(home.path)
    yield from health_checks.check_resident_home(home, state)
    yield from health_checks.check_proxies(home, state)


def _check_machines(home: Home) -> Iterator[HealthCheck]:
    """Check where other machines reach this home and how many may; yield nothing for a home without any."""
    state, n_machines = ask_health(home.path), len(home.sharing.machines.list_machines())
    message = _format_http(make_http_address(home.config.server, state), state)
    if message:
        is_up = bool(state and state.get("http"))
        advice = "" if is_up else "run `perdure serve`"
        yield HealthCheck("http", "ok" if is_up else "notice", message, advice)
    if n_machines or message:
        yield HealthCheck("machines", "ok", f"{format_count(n_machines, 'machine')} registered")


def _check_transcripts(home: Home) -> Iterator[HealthCheck]:
    for runtime, root in transcripts.list_roots(settings.find_user_home(), settings.read_variable):
        if root.exists():
            n_files = sum(
                1
                for name, _ in transcripts.find_transcripts(settings.find_user_home(), settings.read_variable)
                if name == runtime
            )
            yield HealthCheck(runtime, "ok", f"{format_count(n_files, 'transcript')} in {root}")
    if home.captures.current_pause():
        yield HealthCheck("capture", "notice", "paused", "`perdure resume` ends the pause")


def _check_client_hooks(home: Home) -> Iterator[HealthCheck]:
    """Check the hooks of every client that is set up, by a real round trip."""
    for client in setup.CLIENTS:
        path = setup.find_client_settings(client, settings.find_user_home(), settings.read_variable)
        try:
            commands = setup.read_commands(client, path)
            if commands:
                yield from _check_one_client(home, client, path, commands)
        except ClientFault as fault:
            yield HealthCheck(
                f"{client} hooks", "problem", fault.detail, f"`perdure install {client} --dry-run` shows more"
            )


def _check_one_client(home: Home, client: str, path: Path, commands: dict[str, str]) -> Iterator[HealthCheck]:
    hook_home = entries.get_home(next(iter(commands.values())))
    if hook_home != str(home.path):
        yield HealthCheck(
            f"{client} hooks", "notice", f"they write to {hook_home}", f"run `perdure install {client}` to change it"
        )
    took_s = selftest.prove_hooks(client, commands, home.path)
    yield HealthCheck(
        f"{client} hooks", "ok", f"captured a turn and recalled it ({took_s * 1000:.0f} ms, without `serve`)"
    )
    if client == "codex" and not _is_codex_trusted(path):
        yield HealthCheck(
            "codex hooks", "problem", "Codex does not run them yet", "in Codex, type /hooks and trust them"
        )


def _check_mcp_servers(home: Home) -> Iterator[HealthCheck]:  # noqa: ARG001
    """Check that the MCP server of every client that has one can start."""
    for client in entries.CLIENTS:
        path = entries.find_server_settings(client, settings.find_user_home(), settings.read_variable)
        advice = f"`perdure install {client} --mcp` sets it up again"
        try:
            server_words = setup.read_server_command(client, path)
        except ClientFault as fault:
            yield HealthCheck(f"{client} tools", "problem", fault.detail, advice)
            continue
        if server_words and shutil.which(server_words[0]):
            yield HealthCheck(f"{client} tools", "ok", f"in {path}")
        elif server_words:
            yield HealthCheck(f"{client} tools", "problem", f"{server_words[0]} does not run", advice)


def _is_codex_trusted(path: Path) -> bool:
    """Return True if Codex trusts the prompt hook in this file."""
    try:
        table = tomllib.loads(path.with_name("config.toml").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    states = table.get("hooks", {}).get("state", {}) if isinstance(table.get("hooks"), dict) else {}
    return any(str(key).startswith(f"{path}:user_prompt_submit:") for key in states)


_CHECKS: tuple[Callable[[Home], Iterator[HealthCheck]], ...] = (
    health_checks.check_home,
    _check_data_path,
    _check_index,
    _check_embedder,
    _check_pictures,
    health_checks.check_outbox,
    health_checks.check_store,
    health_checks.check_sessions,
    health_checks.check_agents,
    health_checks.check_jobs,
    _check_resident,
    health_checks.check_workers,
    _check_machines,
    health_checks.check_recall,
    health_checks.check_probes,
    _check_scanner,
    health_checks.check_captures,
    health_checks.check_mining,
    health_checks.check_deliveries,
    health_checks.check_app_passwords,
    health_checks.check_telegram,
    health_checks.check_mail,
    _check_transcripts,
    _check_client_hooks,
    _check_mcp_servers,
    health_checks.check_hook_failures,
)


# verify, rebuild, pack ----------------------------------------------------------------------------------------


@command("verify", epilog="  perdure verify && echo whole")
@click.option(
    "--accept-losses",
    is_flag=True,
    help="Record that what is missing now is lost for good: `verify` and `backup` ask for it no longer.",
)
def verify_command(shell: Shell, accept_losses: bool) -> None:
    """Read every byte of the archive and check it: hashes, line ranges, journal order, packs, permissions, and that
    nothing is missing. Each problem is printed with its remedy. Exit status 1: data is lost or at risk.
    """
    if accept_losses:
        with shell.open_home() as home:
            shell.note(f"{home.upkeep.accept_losses():,} missing runs and events accepted as lost")
    with (
        shell.open_home(read_only=True) as home,
        show_progress(shell, "verifying", home.archive.ledger.count_all()[0]) as step,
    ):
        report = home.upkeep.verify(progress=lambda n, _: step(n))
        has_store = bool(home.config.archive.store)
    if report.n_unlisted or has_store:
        with shell.open_home() as home:
            home.upkeep.list_new(report)
            home.upkeep.check_store(report)
    if shell.as_json:
        shell.print_json(
            {
                "ok": report.ok,
                "runs": report.n_runs,
                "packs": report.n_packs,
                "bytes": report.n_bytes,
                "events": report.n_events,
                "digest": report.digest,
                "listed": report.n_listed,
                "findings": [vars(f) for f in report.findings],
            }
        )
    else:
        for finding in report.findings:
            style = "red" if finding.severity == "problem" else "yellow"
            shell.out.print(Text(f"{finding.severity}: ", style=style) + Text(f"{finding.where}: {finding.what}"))
            shell.out.print(f"    {finding.advice}", style="dim", markup=False)
        if report.n_listed:
            shell.note(
                f"{report.n_listed:,} runs and events added to archive/manifest: from now on `verify` tells if one of "
                "them is missing"
            )
        counts = ((report.n_runs, "run"), (report.n_packs, "pack"), (report.n_events, "event"))
        checked = ", ".join([*(format_count(n, noun) for n, noun in counts), format_size(report.n_bytes)])
        shell.out.print(f"{'Whole' if report.ok else 'DAMAGED'}: {checked} checked. Digest {report.digest[:16]}.")
    if not report.ok:
        sys.exit(1)


@command("rebuild", epilog="  perdure rebuild")
def rebuild_command(shell: Shell) -> None:
    """Build a new index next to the old one, check that both give the same answers, and swap them. The old index
    answers until then. An interrupted rebuild continues at the next call.
    """
    with shell.open_home() as home:
        _, _, total = home.archive.ledger.count_all()
        with show_progress(shell, "indexing", total, in_bytes=True) as step:
            result = home.upkeep.rebuild(progress=lambda _, n: step(n))
    is_same = not result.differing and result.same_digest
    if shell.as_json:
        shell.print_json({**vars(result), "same": is_same})
        return
    shell.out.print(
        f"{format_count(result.n_runs, 'run')}, {format_count(result.n_chunks, 'chunk')} indexed"
        f"{' (resumed)' if result.resumed else ''}."
    )
    if not result.compared:
        shell.out.print("The old index could not be read, so nothing was compared.")
    elif is_same:
        shell.out.print(f"Compared: {result.n_queries} queries gave the same answers, and the digests are equal.")
        if result.differing_vectors:
            shell.note(
                f"Vector search gives other results near {format_count(len(result.differing_vectors), 'chunk')}."
            )
    else:
        shell.note(
            "The old index did not match the archive; the new index does. First "
            f"differences: {', '.join(result.differing[:3])}"
        )
    for run_id in result.damaged:
        shell.note(f"run {run_id} cannot be read and is not indexed: run `perdure verify`")


@command("pack", epilog="  perdure pack\n  perdure pack --idle-days 7")
@click.option(
    "--idle-days",
    type=click.IntRange(0, 36500),
    help="Pack conversations that were idle for this number of days (default: 30).",
)
def pack_command(shell: Shell, idle_days: int | None) -> None:
    """Compress the runs of each idle conversation into one file. You can still find, show and verify them."""
    with shell.open_home() as home, show_progress(shell, "packing", None) as step:
        n_packs, n_runs = home.upkeep.pack(idle_days=idle_days, progress=lambda n, _: step(n))
    if shell.as_json:
        shell.print_json({"packs": n_packs, "runs": n_runs})
    else:
        shell.out.print(f"{format_count(n_runs, 'run')} packed into {format_count(n_packs, 'file')}.")
