"""Commands that bring transcripts in, and that keep them out."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import click
import msgspec

import perdure
from perdure import formats
from perdure.capture import post, privacy
from perdure.errors import FormatFault, UsageError
from perdure.intake import HEAD_BYTES, Imported, clean
from perdure.surfaces.cli import thin_import
from perdure.surfaces.cli.common import Shell, command, day, moment, plural, progress, size
from perdure.types import RUNTIMES

_LISTED = 5  # refused files named one by one


@command(
    "import",
    epilog="""\
  perdure import                                  every supported agent's own folder
  perdure import ~/old-laptop/.claude/projects    these instead
  perdure import notes/ --tag notes               Markdown, too
  perdure import chat.json --format messages
  perdure import samples                          the transcripts that come with Perdure, to try it""",
)
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path))
@click.option("--tag", "tags", multiple=True, help="Tag what is imported; may be given several times.")
@click.option("--format", "runtime", help="Read every file as this format instead of judging by content.")
@click.option("--no-index", is_flag=True, help="Only capture; the index catches up at the next search.")
def import_command(
    shell: Shell, paths: tuple[Path, ...], tags: tuple[str, ...], runtime: str | None, no_index: bool
) -> None:
    """Capture transcripts: those in the standard places of Claude Code, Codex, pi, Gemini CLI, Copilot CLI and
    OpenCode, or the files and folders that you name. Only what is new is stored; a second run does nothing.
    """
    paths = tuple(map(_placed, paths))
    missing = [str(path) for path in paths if not path.exists()]
    if missing:
        raise UsageError(f"there is no {missing[0]}")
    if runtime and runtime not in RUNTIMES:
        raise UsageError(f"there is no format {runtime!r}; there are {', '.join(RUNTIMES)}")
    if (thin := shell.thin()) is not None:
        with progress(shell, "sending", None, in_bytes=True) as step:
            _report(shell, thin_import.import_files(thin, paths, tags=tags, runtime=runtime, step=step), None, paths)
        return
    with shell.open(create=True) as home:
        found = home.sources(paths or None)
        total = sum(path.stat().st_size for path in found if path.is_file())
        with progress(shell, "capturing", total, in_bytes=True) as step:
            done = home.import_files(
                paths or None, tags=tags, runtime=runtime, index=False, progress=lambda _, n: step(n)
            )
        chunks = None
        if not no_index:
            with progress(shell, "indexing", done.n_bytes, in_bytes=True) as step:
                chunks = home.catch_up(progress=lambda _, n: step(n))
            home.embed_new()
        _report(shell, done, chunks.n_chunks if chunks else 0, paths)


def _placed(path: Path) -> Path:
    """A path, or for `samples`, where there is no such folder, the sample transcripts that come with Perdure."""
    packaged = Path(perdure.__file__).parent / "samples"
    return packaged if path == Path("samples") and not path.exists() and packaged.is_dir() else path


def _report(shell: Shell, done: Imported, n_chunks: int | None, paths: tuple[Path, ...]) -> None:
    actions = [("perdure search WORDS", "find something in it"), ("perdure tree", "see what ran")]
    if shell.as_json:
        shell.answer(
            {
                "files": done.n_files, "unchanged": done.n_unchanged, "runs": done.n_runs, "bytes": done.n_bytes,
                "rewritten": done.n_rewritten, "chunks": n_chunks, "by_runtime": dict(done.by_runtime),
                "left_out": [{"path": path, "why": why} for path, why in done.left_out],
                "refused": [{"path": path, "why": why} for path, why in done.refused],
            },
            next_actions=actions,
        )  # fmt: skip
        return
    if not done.n_files:
        where = "there" if paths else "in the standard places of the supported agents"
        shell.out.print(f"No transcripts {where}. Name files or folders: `perdure import PATH`.")
        return
    kinds = ", ".join(f"{name} {n}" for name, n in sorted(done.by_runtime.items()))
    what = f"{plural(done.n_runs, 'new run')} ({kinds})" if done.n_runs else "nothing new"
    then = "sent to the home" if n_chunks is None else f"captured, {n_chunks:,} chunks indexed"
    shell.out.print(f"{plural(done.n_files, 'file')}: {what}, {size(done.n_bytes)} {then}.")
    if done.n_unchanged:
        shell.out.print(f"{plural(done.n_unchanged, 'file')} unchanged since the last import.", style="dim")
    if done.n_rewritten:
        shell.note(f"{plural(done.n_rewritten, 'transcript')} had been rewritten; both versions are kept.")
    named = {str(path) for path in paths}
    foreign = [item for item in done.refused if item[0] not in named and "format" in item[1]]
    if foreign:
        shell.out.print(f"{plural(len(foreign), 'other file')} there: no transcripts (--json lists them).", style="dim")
    refused = [item for item in done.refused if item not in foreign]
    for title, items in (("left out by your own rules", done.left_out), ("not captured", refused)):
        for path, why in items[:_LISTED]:
            shell.note(f"{title}: {path}: {why.removeprefix(path + ': ')}")
        if len(items) > _LISTED:
            shell.note(f"{title}: {plural(len(items) - _LISTED, 'more file')} (--json lists them)")
    if done.n_runs:
        shell.suggest(actions)


@command(
    "capture",
    epilog="""\
  perdure capture ~/.claude/projects/-home-me-app/5f0c….jsonl
  perdure capture SESSION.jsonl --incognito        never capture this session""",
)
@click.argument("path", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--from", "from_offset", type=click.IntRange(min=0), help="Byte offset to start at.")
@click.option("--tag", "tags", multiple=True, help="Tag the capture.")
@click.option("--incognito", is_flag=True, help="Copy nothing of this session, now or by a later import.")
def capture_command(shell: Shell, path: Path, from_offset: int | None, tags: tuple[str, ...], incognito: bool) -> None:
    """Put what a live session has written since its last capture into the outbox. It is durable when this returns;
    the next Perdure process moves it into the archive.
    """
    with path.open("rb") as file:
        head = file.read(HEAD_BYTES)
    runtime = formats.detect(head, path.name)
    if runtime is None or not formats.is_append_only(runtime, head):
        raise FormatFault(str(path))
    origin = clean(formats.identify(runtime, head, str(path.absolute())))
    if incognito:
        _keep_off_record(shell, origin.runtime, origin.session)
        _say(shell, {"incognito": origin.session}, "This session is off the record: nothing of it is captured.")
        return
    if (thin := shell.thin()) is not None:
        start, n_bytes = post.post_file(thin, msgspec.to_builtins(origin), path, from_offset=from_offset, tags=tags)
    else:
        with shell.open(create=True) as home:
            start, n_bytes = home.post_file(origin, path, from_offset=from_offset, tags=tags)
    result = {"session": origin.session, "from_offset": start, "bytes": n_bytes}
    _say(shell, result, f"{size(n_bytes)} captured." if n_bytes else "Nothing new.")


def _keep_off_record(shell: Shell, runtime: str, session: str) -> None:
    """Note on this machine that nothing of a session is copied, wherever its home is."""
    if (thin := shell.thin()) is not None:
        privacy.keep_off_record(thin.home, thin.user, runtime, session)
        return
    with shell.open(create=True) as home:
        home.keep_off_record(runtime, session)


def _say(shell: Shell, result: dict[str, object], text: str) -> None:
    if shell.as_json:
        shell.answer(result)
    else:
        shell.out.print(text)


@command("pause", epilog="  perdure pause\n  perdure pause --for 2h")
@click.option("--for", "duration", help="How long: 30m, 2h, 1d. Without it, until `perdure resume`.")
def pause_command(shell: Shell, duration: str | None) -> None:
    """Capture nothing, in every process of this home, until then. What agents write meanwhile can be imported
    later; to keep a session out for good, use `perdure capture --incognito`.
    """
    now = datetime.now(UTC)
    until = None
    if duration:
        past = moment(duration, now=now)
        until = now + (now - past) if past and past < now else past
    if until is not None and until - now > timedelta(days=3650):
        raise UsageError(f"{duration!r} is too long; leave --for out to pause until `perdure resume`")
    if (thin := shell.thin()) is not None:
        privacy.pause(thin.home, privacy.Pause(now, until))
    else:
        with shell.open(create=True) as home:
            home.pause(until_at=until)
    end = f"until {day(until)}" if until else "until `perdure resume`"
    _say(shell, {"paused": True, "until_at": until}, f"Paused: nothing is captured {end}.")


@command("resume", epilog="  perdure resume")
def resume_command(shell: Shell) -> None:
    """Capture again after `perdure pause`."""
    if (thin := shell.thin()) is not None:
        was = privacy.resume(thin.home)
    else:
        with shell.open() as home:
            was = home.resume()
    _say(shell, {"was_paused": was}, "Capturing again." if was else "Capture was not paused.")
    sys.stdout.flush()
