"""The command `start`: import what the clients wrote, show three things from it, answer a question, set up the clients.

Files of clients change only after a yes: on the terminal, or by `--yes`. What is shown is found by rules, and a
thing that no rule is sure of is not shown.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from itertools import groupby
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

import click
from msgspec import to_builtins

from perdure import config as settings
from perdure.access import redact
from perdure.archive.ingest import IngestResult
from perdure.capture import transcripts
from perdure.clients import retention, setup
from perdure.disk import make_folder
from perdure.errors import ClientFault
from perdure.identity import find_project, make_turn_id
from perdure.regex import lazy_re
from perdure.surfaces.cli.common import Shell, command, format_count, format_size, format_time, show_progress
from perdure.surfaces.cli.import_ import describe_recovered
from perdure.surfaces.cli.install import CLIENT_NAMES, offer_service, plan_client_changes
from perdure.surfaces.cli.settings_file import write_settings
from perdure.surfaces.units import N_SHADOW_MESSAGES, describe_retention
from perdure.text import one_line
from perdure.types import Filters, Node, Recalled, RunView, Source

if TYPE_CHECKING:
    from perdure.home import Home

_FIRST_IMPORT_S = 20.0  # the newest transcripts are read for so long; the others in the background
_FIRST_INDEX_S = 15.0
_SEARCH_FIXES_S = 10.0
_BATCH_BYTES = 8_000_000  # transcripts that are read before the clock is looked at
_MAX_RUNS = 200  # newest runs of the project that are searched for a fix
_LINE_CHARS = 160
_MAX_FILES = 3  # edited files that are named
_STRONG_RULE = lazy_re(r"\b(?:must|never|always)\b", re.IGNORECASE)
_MOMENTARY = lazy_re(r"\s*(?:let'?s|let us|please|now|ok(?:ay)?)\b", re.IGNORECASE)  # an order, not a decision


@dataclass(frozen=True)
class HistoryItem:
    """One thing from the person's own history. All texts are masked."""

    title: str
    text: str  # "" if there is none: `detail` then says so
    detail: str = ""
    at: datetime | None = None
    client: str = ""
    session: str = ""
    show: str = ""  # the id for `perdure show`


@command(
    "start",
    epilog="""\
  perdure start
  perdure start --question "why did we choose sqlite?"
  perdure start --yes                 set up all clients and the service without a question
  perdure start --shadow              only record what recall would tell, until `perdure review`
  perdure start --no-install --json   only import and show""",
)
@click.option("--question", metavar="TEXT", help="Answer this question from your history.")
@click.option("--yes", is_flag=True, help="Set up every client found and the service, without a question.")
@click.option("--shadow", is_flag=True, help="Let hooks record what recall would tell, and say nothing.")
@click.option("--no-install", is_flag=True, help="Set up no client.")
@click.option("--no-service", is_flag=True, help="Do not offer the service.")
def start_command(
    shell: Shell, question: str | None, yes: bool, shadow: bool, no_install: bool, no_service: bool
) -> None:
    """Begin with Perdure: import the transcripts of your agents, see three things from them, ask one question, and set
    up your clients. Without a terminal, nothing is asked and no file of a client is changed, unless --yes is given.
    """
    home_folder, can_ask = settings.find_home_path(shell.home), sys.stdin.isatty() and not shell.as_json
    clients = _find_clients()
    with shell.open_home(create=True) as home:
        imported = _import_newest(shell, home)
        project, is_other = _choose_project(home, find_project(str(Path.cwd())))
        items = _find_three(home, project) if imported["files"] else []
        _print_items(shell, imported, project if is_other else None, items)
        if question is None and can_ask and items:
            question = click.prompt(
                "Ask one question about your work (Enter skips)", default="", show_default=False, err=True
            )
        recalled = home.recall(question, cwd=project) if question else None
        if recalled:
            _print_recalled(shell, recalled)
    changed = [] if no_install else _offer_clients(shell, clients, home_folder, can_ask=can_ask, is_agreed=yes)
    if not shadow and changed and can_ask and not yes:
        choice = f"Should recall speak from the first message on? (No: only record, for {N_SHADOW_MESSAGES} messages)"
        shadow = not click.confirm(choice, default=True, err=True)
    if shadow:
        write_settings(home_folder, {("live",): {"shadow": True}})
        shell.note(
            f"Shadow: hooks record what recall would tell, and say nothing. After {N_SHADOW_MESSAGES} messages: "
            "`perdure review`."
        )
    if not no_service and clients and (yes or can_ask):
        offer_service(shell, home_folder, is_agreed=yes)
    if imported["waiting"] or imported["behind"]:
        _import_rest(home_folder)
        left_text = format_count(imported["waiting"], "older transcript") if imported["waiting"] else "The index"
        shell.note(f"{left_text}: the import goes on in the background. `perdure status` shows what is there.")
    if shell.as_json:
        result = {
            **imported,
            "project": project,
            "is_other_project": is_other,
            "findings": [asdict(finding) for finding in items],
            "clients": clients,
            "changed": changed,
            "shadow": settings.load(home_folder).live.shadow,
        }
        answer = {"question": question, "cues": [to_builtins(cue) for cue in recalled.cues]} if recalled else None
        shell.print_json({**result, "answer": answer})
        return
    shell.suggest([
        ('perdure search "WORDS"', "find any turn again"),
        ("perdure doctor", "check the clients that are set up"),
        ("perdure uninstall CLIENT", "restore a client's settings"),
    ])  # fmt: skip


def _find_clients() -> list[str]:
    """Return the clients whose folder is on this machine, of those that can be set up."""
    roots = transcripts.list_roots(settings.find_user_home(), settings.read_variable)
    folders = {client: folder for client, folder in roots if folder.is_dir()}
    return [client for client in setup.CLIENTS if client in folders]


# import -------------------------------------------------------------------------------------------------------


def _import_newest(shell: Shell, home: Home) -> dict[str, Any]:
    """Import and index transcripts, newest first, for some seconds; return how many were read and how many are left."""
    paths = sorted(filter(Path.is_file, home.captures.transcripts_to_import()), key=_read_age)
    ends_s, counts = time.monotonic() + _FIRST_IMPORT_S, {"files": len(paths), "runs": 0, "bytes": 0}
    recovered = IngestResult()
    total, n_read = sum(path.stat().st_size for path in paths), 0
    with show_progress(shell, "reading", total, in_bytes=True) as step:
        for batch in _iter_batches(paths):
            if time.monotonic() > ends_s:
                break
            result = home.import_files(batch, index=False)
            counts["runs"] += result.n_runs
            counts["bytes"] += result.n_bytes
            recovered.n_recovered_prompts += result.n_recovered_prompts
            recovered.n_recovered_sessions += result.n_recovered_sessions
            paths = paths[len(batch) :]
            n_read += sum(path.stat().st_size for path in batch)
            step(n_read)
    with show_progress(shell, "indexing", counts["bytes"], in_bytes=True) as step:
        indexed = home.upkeep.catch_up(limit_s=_FIRST_INDEX_S, progress=lambda _, n: step(n))
    home.upkeep.embed_new()
    if recovered.n_recovered_prompts:
        shell.note(f"{describe_recovered(recovered)}.")
    n_recovered = {"prompts": recovered.n_recovered_prompts, "sessions": recovered.n_recovered_sessions}
    return {**counts, "recovered": n_recovered, "waiting": len(paths), "behind": indexed.n_behind}


def _read_age(path: Path) -> float:
    """Return a number that is smaller for a file that was written later."""
    return -path.stat().st_mtime


def _iter_batches(paths: Iterable[Path]) -> Iterator[list[Path]]:
    """Yield the paths in lists of about _BATCH_BYTES each."""
    batch: list[Path] = []
    for path in paths:
        batch.append(path)
        if sum(file.stat().st_size for file in batch) >= _BATCH_BYTES:
            yield batch
            batch = []
    if batch:
        yield batch


def _import_rest(home: Path) -> None:
    """Import what is left in a process that goes on when this one ends; it skips what is captured."""
    words = [sys.executable, "-m", "perdure.surfaces.cli", "import", "--home", str(home)]
    make_folder(home / "run")
    descriptor = os.open(home / "run" / "import.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with open(descriptor, "wb") as log:
        subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)


# three things -------------------------------------------------------------------------------------------------


def _choose_project(home: Home, current: str | None) -> tuple[str | None, bool]:
    """Return (the project to show, whether it is another than that of the current folder)."""
    counts = {name: n for name, n in home.runs.facets("").counts.get("project", {}).items() if name}
    if current in counts or not counts:
        return current, False
    return max(counts, key=lambda name: (counts[name], name)), True


def _find_three(home: Home, project: str | None) -> list[HistoryItem]:
    """Return a decision, a failure that was fixed, and what a client will delete, each of one project."""
    nodes = home.runs.forest(Filters(projects=(project or "",)), limit=_MAX_RUNS)
    runs = [run for run in _iter_runs(nodes) if run.project == project and not run.sidechain]
    return [_find_decision(home, project), _find_fix(home, runs), _find_deletion(runs)]


def _iter_runs(nodes: Iterable[Node]) -> Iterator[RunView]:
    for node in nodes:
        yield node.run
        yield from _iter_runs(node.children)


def _find_decision(home: Home, project: str | None) -> HistoryItem:
    """Return the newest decision that the person stated, or else the newest rule with a strong word."""
    for memory in home.memories.list_memories(project=project or ""):
        if (
            memory.trust == "owner"
            and not _MOMENTARY.match(memory.text)
            and (memory.kind == "decision" or (memory.kind == "procedure" and _STRONG_RULE.search(memory.text)))
        ):
            title = "A decision" if memory.kind == "decision" else "A rule that you set"
            statement = one_line(redact.mask(memory.text), _LINE_CHARS)
            return HistoryItem(
                title, statement, "", memory.stated_at, memory.runtime, memory.conversation, memory.memory_id
            )
    return HistoryItem("A decision", "", "no decision found: you stated none in so many words")


def _find_fix(home: Home, runs: Iterable[RunView]) -> HistoryItem:
    """Return the newest failure that a session fixed."""
    title, ends_s = "A failure that was fixed", time.monotonic() + _SEARCH_FIXES_S
    sessions = groupby(sorted(runs, key=_session_order), key=lambda run: _session_order(run)[:3])
    newest_first = sorted((list(group) for _, group in sessions), key=_last_time, reverse=True)
    for session in newest_first:
        if time.monotonic() > ends_s:
            break
        if fixes := home.runs.fixes([run.run_id for run in session]):
            fix, first = fixes[-1], session[0]
            source = Source(first.user, first.runtime, first.session, first.generation)
            names = [PurePath(path.replace("\\", "/")).name for path in fix.files]
            more = f" and {len(names) - _MAX_FILES} more" if len(names) > _MAX_FILES else ""
            detail = f"passed after a change of {', '.join(names[:_MAX_FILES])}{more}" if names else "passed later"
            failure = one_line(redact.mask(f"{fix.command}: {fix.error}"), _LINE_CHARS)
            turn_id = make_turn_id(source, fix.passed.offset)
            return HistoryItem(title, failure, detail, fix.passed.stated_at, source.runtime, source.session, turn_id)
    return HistoryItem(title, "", "no failure found that the same session fixed")


def _session_order(run: RunView) -> tuple[str, str, int, int]:
    return run.runtime, run.session, run.generation, run.from_offset


def _last_time(runs: Sequence[RunView]) -> datetime:
    return max(run.ended_at or run.captured_at for run in runs)


def _find_deletion(runs: Iterable[RunView]) -> HistoryItem:
    """Return the session of these runs that its client deletes first."""
    title, user_home = "What a client will delete", settings.find_user_home()
    rules = {
        client: retention.read_retention(client, user_home, settings.read_variable)
        for client in {run.runtime for run in runs} & set(retention.SOURCES)
    }
    deletions = []
    for run in runs:
        rule = rules.get(run.runtime)
        if rule and rule.days is not None and run.path and Path(run.path).is_file():
            used_at = datetime.fromtimestamp(Path(run.path).stat().st_mtime, UTC)
            deletions.append((used_at + timedelta(days=rule.days), run.run_id, run))
    described = "; ".join(f"{CLIENT_NAMES[client]} {describe_retention(rule)}" for client, rule in rules.items())
    if not deletions:
        return HistoryItem(title, "", described or "no client deletes anything here")
    deletes_at, run_id, run = min(deletions)
    name = one_line(redact.mask(run.title or run.intent or run.session), _LINE_CHARS)
    return HistoryItem(
        title, name, f"{described}; Perdure keeps its copy", deletes_at, run.runtime, run.session, run_id
    )


def _print_items(shell: Shell, imported: dict[str, Any], other: str | None, items: Sequence[HistoryItem]) -> None:
    if shell.as_json:
        return
    if not items:
        shell.out.print(
            "No transcripts were found in the standard folders of Claude Code, Codex, pi, Gemini CLI, Copilot CLI and "
            "OpenCode.\nWork with one of them, or name files: `perdure import PATH`. Then run `perdure start` again."
        )
        return
    shell.out.print(
        f"{format_count(imported['files'], 'transcript')}: {format_size(imported['bytes'])} captured, "
        f"{format_count(imported['runs'], 'new run')}.",
        markup=False,
    )
    if other:
        shell.note(f"Nothing is known of the project of this folder. These are from your busiest one: {other}")
    for finding in items:
        shell.out.print(f"\n{finding.title}", style="bold", markup=False)
        if not finding.text:
            shell.out.print(f"  {finding.detail}.", style="dim", markup=False)
            continue
        shell.out.print(f"  {finding.text}", markup=False)
        if finding.detail:
            shell.out.print(f"  {finding.detail}", markup=False)
        source = f"{format_time(finding.at)}  {finding.client}  session {finding.session}"
        shell.out.print(f"  {source}  `perdure show {finding.show}`", style="dim", markup=False)


def _print_recalled(shell: Shell, recalled: Recalled) -> None:
    if shell.as_json:
        return
    shell.out.print("\nFrom your history", style="bold")
    if not recalled.cues:
        shell.out.print(f"  Nothing: {recalled.silent}.", markup=False)
    for cue in recalled.cues:
        shell.out.print(f"  {one_line(redact.mask(cue.text), 3 * _LINE_CHARS)}", markup=False)
        kind = "memory" if cue.memory else cue.role
        location = f"{format_time(cue.stated_at)}  {kind}  {cue.runtime}  `perdure show {cue.turn_id}`"
        shell.out.print(f"    {location}", style="dim", markup=False)


# clients ------------------------------------------------------------------------------------------------------


def _offer_clients(
    shell: Shell, clients: Iterable[str], home: Path, *, can_ask: bool, is_agreed: bool
) -> list[dict[str, str]]:
    """Set up each client that the person agrees to; return (client, path) of each changed file."""
    changed: list[dict[str, str]] = []
    for client in clients:
        try:
            changes = [change for change in plan_client_changes(client, home, mcp=False) if change.has_effect]
        except ClientFault as fault:
            shell.note(f"{CLIENT_NAMES[client]}: {fault}")
            continue
        if not changes:
            shell.note(f"{CLIENT_NAMES[client]} is set up.")
            continue
        if not is_agreed:
            question = f"Set up {CLIENT_NAMES[client]} ({changes[0].path})?"
            if not can_ask or not click.confirm(question, default=True, err=True):
                shell.note(f"{CLIENT_NAMES[client]} was not changed: `perdure install {client}` sets it up.")
                continue
        setup.write_script(setup.make_program(home))
        for change in changes:
            setup.apply_change(change, keep_copy=True)
            changed.append({"client": client, "path": str(change.path)})
        advice = " Then trust its hooks once: /hooks in Codex." if client == "codex" else ""
        shell.note(f"{CLIENT_NAMES[client]} is set up. Restart it.{advice}")
    return changed
