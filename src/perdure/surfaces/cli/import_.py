"""Commands about capture: import, capture, pause, resume.

On a thin machine, transcripts go through its outbox: nothing counts as captured before it is durable there.
What the home already has is kept once.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

import perdure
from perdure import config as settings
from perdure import formats
from perdure.archive.ingest import HEAD_BYTES, IngestResult, add_noted_fields, clean_origin, emit_missing
from perdure.capture import deliver, enqueue, policy, transcripts
from perdure.capture.policy import CaptureRules
from perdure.capture.transcripts import OriginFields
from perdure.clients import retention
from perdure.errors import ConfigFault, FormatFault, IndexFault, PerdureError, UsageError
from perdure.service import lock
from perdure.surfaces.cli.common import (
    Shell,
    command,
    format_count,
    format_size,
    format_time,
    parse_moment,
    show_progress,
)
from perdure.surfaces.cli.install import CLIENT_NAMES
from perdure.surfaces.units import describe_retention, describe_saved
from perdure.types import EXTERNAL_RUNTIMES, MCP_RUNTIME, PROMPTS_ONLY, RUNTIMES, TRUSTS, Origin

if TYPE_CHECKING:  # a machine that only captures has no home of its own
    from perdure.home import Home

_MAX_WAITING_BYTES = 1 << 26  # bytes that may wait before they are sent
_SENDER_WAIT_S = 60.0  # how long to wait for another process that is sending

ReadProgress = Callable[[int], object]  # takes the number of bytes read so far


def import_to_remote(
    rules: CaptureRules, paths: Sequence[Path], *, tags: Sequence[str], runtime: str | None, step: ReadProgress
) -> IngestResult:
    """Send every transcript in these files and folders, or in the standard places; the result lists what was left
    out.

    Raises UsageError while capture is paused, RemoteFault if the home takes nothing: what was read until then
    waits.
    """
    if policy.read_pause(rules.home, datetime.now(UTC)):
        raise UsageError("capture is paused, so nothing was copied; `perdure resume` ends the pause")
    imported, n_bytes = IngestResult(), 0
    for path in _list_sources(rules.home, paths):
        imported.n_files += 1
        try:
            _capture_file(rules, path, tags, runtime, imported)
            n_bytes += path.stat().st_size
        except (PerdureError, OSError) as error:
            imported.refused.append((str(path), str(error)))
        if enqueue.measure_backlog(rules.home / "outbox").n_bytes > _MAX_WAITING_BYTES:
            deliver.deliver_outbox(rules, wait_s=_SENDER_WAIT_S)
        step(n_bytes)
    deliver.deliver_outbox(rules, wait_s=_SENDER_WAIT_S)
    return imported


def _list_sources(home: Path, paths: Sequence[Path]) -> Iterable[Path]:
    """List the files to look at; never those of Perdure itself."""
    if not paths:
        return transcripts.find_sources(settings.find_user_home(), settings.read_variable)  # a hook takes host files
    home_folder = home.resolve()
    all_paths = [below for path in paths for below in transcripts.find_files_below(path)]
    return [path for path in all_paths if not path.resolve().is_relative_to(home_folder)]


def _capture_file(
    rules: CaptureRules, path: Path, tags: Sequence[str], forced_runtime: str | None, imported: IngestResult
) -> None:
    """Put the new bytes of a file into the outbox."""
    with path.open("rb") as file:
        first_bytes = file.read(HEAD_BYTES)
    runtime = forced_runtime or formats.detect(first_bytes, str(path.absolute()))
    if not first_bytes.strip():
        imported.n_unchanged += 1
    elif runtime is None:
        raise FormatFault(str(path))
    elif not formats.is_append_only(runtime, first_bytes):
        for emitted_origin, lines in emit_missing(runtime, path):
            fields = msgspec.to_builtins(add_noted_fields(clean_origin(emitted_origin), path))
            if _check_allowed(rules, fields, path, imported):
                n_lines = enqueue.enqueue_lines(rules, fields, lines, path=str(path.absolute()))
                imported.count_recovered(emitted_origin, n_lines)
                _count_capture(imported, runtime, n_lines)
    elif not (runtime == "gemini-cli" and transcripts.is_blank(path)):
        fields = msgspec.to_builtins(identify_origin(runtime, first_bytes, path))
        if _check_allowed(rules, fields, path, imported):
            n_bytes = enqueue.enqueue_file(rules, fields, path, tags=tags)[1]
            imported.n_bytes += n_bytes
            _count_capture(imported, runtime, n_bytes)


def _check_allowed(rules: CaptureRules, fields: OriginFields, path: Path, imported: IngestResult) -> bool:
    """Return True if the session may be copied; else record why not."""
    refusal = enqueue.get_refusal(rules, fields)
    imported.left_out += [(str(path), refusal)] if refusal else []
    return refusal is None


def _count_capture(imported: IngestResult, runtime: str, n_new: int) -> None:
    imported.n_unchanged += not n_new
    imported.n_runs += bool(n_new)
    imported.by_runtime.update([runtime] if n_new else [])


def identify_origin(runtime: str, first_bytes: bytes, path: Path) -> Origin:
    """Return whose session a transcript holds."""
    return add_noted_fields(clean_origin(formats.identify(runtime, first_bytes, str(path.absolute()))), path)


_FILE_FORMATS = tuple(name for name in RUNTIMES if name not in EXTERNAL_RUNTIMES)
_MAX_LISTED = 5  # refused files that are listed one by one


@command(
    "import",
    epilog="""\
  perdure import                                  the folders of all supported agents
  perdure import ~/old-laptop/.claude/projects    these files instead
  perdure import notes/ --tag notes               Markdown files
  perdure import chat.json --format messages
  perdure import samples                          the sample transcripts of Perdure
  perdure import --again                          what `perdure verify` finds missing or damaged
  perdure import --from claude-mem                the memories of another product: a preview
  perdure import --from claude-mem --apply        import them
  perdure import --from memory-server memory.jsonl --apply
  perdure import --from markdown ~/notes --trust owner --apply
  perdure import --from mcp docs --apply          the documents of the MCP server in [mcp.sources.docs]""",
)
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path))
@click.option("--tag", "tags", multiple=True, help="Add this tag to the imported runs. Can be repeated.")
@click.option("--format", "runtime", help="Read every file as this format (default: detect it from the content).")
@click.option("--no-index", is_flag=True, help="Only capture; the next search updates the index.")
@click.option(
    "--from",
    "store",
    type=click.Choice(EXTERNAL_RUNTIMES),
    help="Import the memories of this product: from where you have it, or from the files and folders that you name; "
    "mcp: the documents of the MCP servers that config.toml names. A preview; --apply imports.",
)
@click.option("--apply", is_flag=True, help="With --from: import what the preview shows.")
@click.option("--trust", type=click.Choice(TRUSTS), help="With --from: the trust of the memories (default: agent).")
@click.option("--project", help="With --from: the project of all records (default: what the store says).")
@click.option("--everywhere", is_flag=True, help="With --from: use no project; the records hold in all projects.")
@click.option(
    "--again",
    is_flag=True,
    help="Check the archive, and take in again each run that is missing or damaged, from a transcript that still holds "
    "its bytes. Damaged files are set aside in archive/quarantine.",
)
def import_command(
    shell: Shell,
    paths: tuple[Path, ...],
    tags: tuple[str, ...],
    runtime: str | None,
    no_index: bool,
    again: bool,
    **options: Any,
) -> None:
    """Capture transcripts: those in the standard folders of Claude Code, Codex, pi, Gemini CLI, Copilot CLI and
    OpenCode, or the files and folders that you name. Only new bytes are stored; a second import does nothing.

    With --from, import the memories of another product instead: each record becomes a turn with its source, and a
    memory if it passes the write gate. The store is only read. A second import adds nothing; a changed record replaces
    its earlier text. With --from mcp NAME, the resources of that MCP server, and the answers of the tools that its
    table in config.toml lists, become turns that count as from the web; what did not change is not stored again.
    """
    transcript_options = {"--tag": tags, "--format": runtime, "--no-index": no_index, "--again": again}
    _check_ways(options, [name for name, value in transcript_options.items() if value])
    if options["store"] == MCP_RUNTIME:
        from perdure.surfaces.cli import import_mcp

        import_mcp.import_sources(shell, list(map(str, paths)), is_applied=options["apply"])
        return
    paths = tuple(map(_resolve_samples, paths))
    if options["store"]:
        from perdure.surfaces.cli import import_store

        import_store.import_store(shell, options["store"], paths, options)
        return
    missing_paths = [str(path) for path in paths if not path.exists()]
    if missing_paths:
        raise UsageError(f"no such file or folder: {missing_paths[0]}")
    if runtime and runtime not in _FILE_FORMATS:
        raise UsageError(f"unknown format {runtime!r}; known formats: {', '.join(_FILE_FORMATS)}")
    if again:
        _take_again(shell, paths, runtime)
        return
    if (rules := shell.load_thin_rules()) is not None:
        with show_progress(shell, "sending", None, in_bytes=True) as step:
            _print_import(shell, import_to_remote(rules, paths, tags=tags, runtime=runtime, step=step), None, paths)
        return
    _import_transcripts(shell, paths, tags=tags, runtime=runtime, is_indexed=not no_index)


def _import_transcripts(
    shell: Shell, paths: tuple[Path, ...], *, tags: tuple[str, ...], runtime: str | None, is_indexed: bool
) -> None:
    """Capture and index transcripts in this machine's home. Exit status 1: a file that was named is refused."""
    with shell.open_home(create=True) as home:
        sources = home.captures.transcripts_to_import(paths or None)
        total = sum(path.stat().st_size for path in sources if path.is_file())
        with show_progress(shell, "capturing", total, in_bytes=True) as step:
            imported = home.import_files(
                paths or None, tags=tags, runtime=runtime, index=False, progress=lambda _, n: step(n)
            )
        n_chunks, embedding, n_saved = 0, (0, ""), 0
        try:
            if is_indexed:
                with show_progress(shell, "indexing", imported.n_bytes, in_bytes=True) as step:
                    n_chunks = home.upkeep.catch_up(progress=lambda _, n: step(n)).n_chunks
                home.upkeep.embed_new()
                embedding = _describe_embedding(home)
                n_saved = home.runs.count_saved_sessions()
        except IndexFault:
            if not shell.as_json:  # what was captured is safe, and the error does not say so
                _print_import(shell, imported, 0, paths)
            raise
        _print_import(shell, imported, n_chunks, paths, embedding, n_saved)
    if _has_refused(imported, paths):
        sys.exit(1)


def _check_ways(options: dict[str, Any], transcript_options: Sequence[str]) -> None:
    """Raise UsageError for an option of one way to import that was given with the other."""
    store = options["store"]
    if store and transcript_options:
        raise UsageError(f"{transcript_options[0]} is for transcripts; leave it out with --from {store}")
    store_options = [name for name in ("apply", "trust", "project", "everywhere") if options[name]]
    if store == MCP_RUNTIME and store_options != ["apply"] * len(store_options):
        raise UsageError(f"--{store_options[-1]} is not for --from mcp: its table in config.toml says the project")
    if not store and store_options:
        raise UsageError(f"--{store_options[0]} is for the memories of another product: name it with --from")


def _take_again(shell: Shell, paths: tuple[Path, ...], runtime: str | None) -> None:
    """Take in again what is missing or damaged. Exit status 1: something still is."""
    if shell.load_thin_rules() is not None:  # opening the home refuses, and says where to run this
        shell.note("A transcript on this machine must be copied there first.")
    with shell.open_home() as home:
        taken = home.upkeep.take_again(paths or None, runtime=runtime)
        home.upkeep.catch_up()
    if shell.as_json:
        lost_runs = [{"run": record.run, "session": record.source.session} for record in taken.lost]
        shell.print_json({"runs": list(taken.run_ids), "lost": lost_runs})
    else:
        count = format_count(len(taken.run_ids), "run")
        shell.out.print(f"{count} taken in again." if taken.run_ids or taken.lost else "No run is missing or damaged.")
        for record in taken.lost:
            where = f"{record.source.runtime} {record.source.session}, bytes {record.start:,} to {record.end:,}"
            shell.note(f"still lost: {record.run} ({where}): no transcript there holds these bytes; merge a backup")
    if taken.lost:
        sys.exit(1)


def _resolve_samples(path: Path) -> Path:
    """Return the path. For `samples`, if there is no such folder, return the sample transcripts that come with
    Perdure.
    """
    samples_folder = Path(perdure.__file__).parent / "samples"
    return samples_folder if path == Path("samples") and not path.exists() and samples_folder.is_dir() else path


def _describe_embedding(home: Home) -> tuple[int, str]:
    """Return how many chunks still get a vector, and a sentence that says when, or why none will; "" if all is done."""
    try:
        choice, n_chunks = home.connections.vectors().choice, home.upkeep.count_unembedded()
    except ConfigFault as error:  # what was captured is safe
        return 0, str(error)
    if choice.embedder is None and home.config.models.embedder.kind != "off":
        return 0, f"{choice.notice}."
    if not n_chunks:
        return 0, ""
    if home.config.jobs.embed and lock.find_resident(home.path):
        plan = "are embedded in the background, newest first; `perdure status` shows how many are left."
    else:
        plan = "have no vector yet: `perdure embed` or `perdure serve --detach` adds search by meaning."
    return n_chunks, f"Search by words works now. {format_count(n_chunks, 'chunk')} {plan}"


def _print_import(
    shell: Shell,
    imported: IngestResult,
    n_chunks: int | None,
    paths: tuple[Path, ...],
    embedding: tuple[int, str] = (0, ""),
    n_saved: int = 0,
) -> None:
    actions = [("perdure search WORDS", "find something in it"), ("perdure tree", "show the runs")]
    if shell.as_json:
        shell.print_json(_to_json(imported, n_chunks, embedding[0], n_saved), next_actions=actions)
        return
    if not imported.n_files:
        where = "there" if paths else "in the standard places of the supported agents"
        shell.out.print(f"No transcripts {where}. Name files or folders: `perdure import PATH`.")
        return
    kinds = ", ".join(f"{name} {n_of_kind}" for name, n_of_kind in sorted(imported.by_runtime.items()))
    news = f"{format_count(imported.n_runs, 'new run')} ({kinds})" if imported.n_runs else "nothing new"
    outcome = "sent to the remote home" if n_chunks is None else f"captured, {n_chunks:,} chunks indexed"
    shell.out.print(f"{format_count(imported.n_files, 'file')}: {news}, {format_size(imported.n_bytes)} {outcome}.")
    if imported.n_recovered_prompts:
        shell.out.print(f"{describe_recovered(imported)}.", markup=False)
    if n_saved:
        shell.out.print(f"The archive holds {describe_saved(n_saved)}.", markup=False)
    if not paths:
        for line in describe_retentions(imported.by_runtime):
            shell.out.print(line, style="dim", markup=False)
    if imported.n_unchanged:
        shell.out.print(f"{format_count(imported.n_unchanged, 'file')} unchanged since the last import.", style="dim")
    if imported.n_rewritten:
        shell.note(
            f"Another version of {format_count(imported.n_rewritten, 'transcript')} was here already; both are kept."
        )
    _print_left_out(shell, imported, paths)
    if embedding[1] and imported.n_runs:
        shell.out.print(embedding[1])
    if imported.n_runs:
        shell.suggest(actions)


def _to_json(imported: IngestResult, n_chunks: int | None, n_unembedded: int, n_saved: int) -> dict[str, Any]:
    return {
        "files": imported.n_files,
        "unchanged": imported.n_unchanged,
        "runs": imported.n_runs,
        "bytes": imported.n_bytes,
        "rewritten": imported.n_rewritten,
        "chunks": n_chunks,
        "unembedded": n_unembedded,
        "by_runtime": dict(imported.by_runtime),
        "recovered": {"prompts": imported.n_recovered_prompts, "sessions": imported.n_recovered_sessions},
        "saved_sessions": n_saved,
        "left_out": [{"path": path, "why": reason} for path, reason in imported.left_out],
        "refused": [{"path": path, "why": reason} for path, reason in imported.refused],
    }


def _print_left_out(shell: Shell, imported: IngestResult, paths: tuple[Path, ...]) -> None:
    """Print which files were not captured, and why. A folder may hold other files than transcripts."""
    named_paths = {str(path) for path in paths}
    other_files = [item for item in imported.refused if item[0] not in named_paths and "format" in item[1]]
    if other_files:
        shell.out.print(
            f"{format_count(len(other_files), 'other file')} skipped: not a transcript (--json lists them).",
            style="dim",
        )
    refused = [item for item in imported.refused if item not in other_files]  # named, or not readable
    for title, items in (("excluded by your settings", imported.left_out), ("not captured", refused)):
        for path, reason in items[:_MAX_LISTED]:
            shell.note(f"{title}: {path}: {reason.removeprefix(path + ': ')}")
        if len(items) > _MAX_LISTED:
            shell.note(f"{title}: {format_count(len(items) - _MAX_LISTED, 'more file')} (--json lists them)")


def describe_recovered(imported: IngestResult) -> str:
    """Say what the prompt histories of clients gave back."""
    n_prompts, n_sessions = imported.n_recovered_prompts, imported.n_recovered_sessions
    sessions = format_count(n_sessions, "deleted session")
    return f"Recovered {format_count(n_prompts, 'prompt')} of {sessions}, without the answers"


def describe_retentions(runtimes: Iterable[str]) -> list[str]:
    """Say how long each of these clients keeps its transcripts, if it deletes them."""
    clients = {runtime.removesuffix(PROMPTS_ONLY) for runtime in runtimes} & set(retention.SOURCES)
    user_home = settings.find_user_home()
    rules = [retention.read_retention(client, user_home, settings.read_variable) for client in sorted(clients)]
    return [f"{CLIENT_NAMES[rule.client]} {describe_retention(rule)}." for rule in rules if rule.days is not None]


def _has_refused(imported: IngestResult, paths: tuple[Path, ...]) -> bool:
    """Return True if a file that was named could not be captured."""
    return not {str(path) for path in paths}.isdisjoint(path for path, _ in imported.refused)


@command(
    "capture",
    epilog="""\
  perdure capture ~/.claude/projects/-home-me-app/5f0c….jsonl
  perdure capture SESSION.jsonl --incognito        never capture this session""",
)
@click.argument("path", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option(
    "--from",
    "from_offset",
    type=click.IntRange(min=0),
    help="Start at this byte offset (default: the end of the last capture).",
)
@click.option("--tag", "tags", multiple=True, help="Add this tag to the capture.")
@click.option("--incognito", is_flag=True, help="Never capture this session, not even by a later import.")
def capture_command(shell: Shell, path: Path, from_offset: int | None, tags: tuple[str, ...], incognito: bool) -> None:
    """Copy the new part of a live session into the outbox. The copy is on disk when this command returns; the next
    Perdure process moves it into the archive.
    """
    with path.open("rb") as file:
        first_bytes = file.read(HEAD_BYTES)
    runtime = formats.detect(first_bytes, path.name)
    if runtime is None or not formats.is_append_only(runtime, first_bytes):
        raise FormatFault(str(path))
    origin = clean_origin(formats.identify(runtime, first_bytes, str(path.absolute())))
    rules = shell.load_capture_rules(create=True)
    if incognito:
        policy.mark_incognito(rules.home, rules.user, origin.runtime, origin.session)
        _print_result(shell, {"incognito": origin.session}, "This session is not captured (--incognito).")
        return
    start, n_bytes = enqueue.enqueue_file(rules, msgspec.to_builtins(origin), path, from_offset=from_offset, tags=tags)
    result = {"session": origin.session, "from_offset": start, "bytes": n_bytes}
    _print_result(shell, result, f"{format_size(n_bytes)} captured." if n_bytes else "Nothing new.")


def _print_result(shell: Shell, result: dict[str, object], message: str) -> None:
    if shell.as_json:
        shell.print_json(result)
    else:
        shell.out.print(message)


@command("pause", epilog="  perdure pause\n  perdure pause --for 2h")
@click.option("--for", "duration", help="Pause for this time: 30m, 2h, 1d (default: until `perdure resume`).")
def pause_command(shell: Shell, duration: str | None) -> None:
    """Stop capturing for some time, in every process of this home. Later you can import the transcripts that agents
    write during the pause. To exclude a session permanently, use `perdure capture --incognito`.
    """
    now = datetime.now(UTC)
    until_at = None
    if duration:
        parsed_at = parse_moment(duration, now=now)
        until_at = now + (now - parsed_at) if parsed_at and parsed_at < now else parsed_at
    if until_at is not None and until_at - now > timedelta(days=3650):
        raise UsageError(f"{duration!r} is too long; omit --for to pause until `perdure resume`")
    policy.pause_capture(shell.load_capture_rules(create=True).home, policy.CapturePause(now, until_at))
    end_text = f"until {format_time(until_at)}" if until_at else "until `perdure resume`"
    _print_result(shell, {"paused": True, "until_at": until_at}, f"Paused: nothing is captured {end_text}.")


@command("resume", epilog="  perdure resume")
def resume_command(shell: Shell) -> None:
    """Start capturing again after `perdure pause`."""
    was_paused = policy.resume_capture(shell.load_capture_rules().home)
    _print_result(shell, {"was_paused": was_paused}, "Capturing again." if was_paused else "Capture was not paused.")
    sys.stdout.flush()
