"""Commands that read: search, show, tree."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, get_args

import click
from rich.text import Text

from perdure import placed_turns, text
from perdure.access.redact import mask
from perdure.errors import Busy, DiskFull, ReadOnlyHome, UsageError
from perdure.formats.call_text import describe_call
from perdure.home import Home
from perdure.placed_turns import PlacedTurn, label_with_owner
from perdure.remote_home import RemoteHome
from perdure.surfaces.cli.common import (
    ROLE_STYLES,
    Actions,
    Shell,
    command,
    format_count,
    format_scores,
    format_time,
    format_time_and_age,
    parse_moment,
)
from perdure.surfaces.cli.memory_common import ID_PREFIX, complete_memory_ids
from perdure.surfaces.trees import draw_trees
from perdure.types import Filters, Hit, Node, Part, Role, RunView, SearchResult, Turn

_SNIPPET_CHARS = 240
_RESULT_CHARS = 1200  # of a tool's input or output in `show`, unless --full
_LIST_FILTERS = (
    "agent",
    "project",
    "runtime",
    "machine",
    "conversation",
    "role",
    "kind",
    "tag",
    "file",
    "tool",
    "skill",
)


_FILTER_VALUES = {"role": get_args(Role), "kind": ("text", "thinking", "call", "result", "picture")}


def add_filter_options(function: Callable[..., None]) -> Callable[..., None]:
    """Add the options that limit a search. Each may be given several times: any value matches; of tags, all must."""
    help_texts = {
        "agent": "Only turns of this agent.",
        "project": "Only turns of this project (its path, or the end of the path).",
        "runtime": "Only turns of this client, e.g. claude-code.",
        "machine": "Only turns captured on this machine.",
        "conversation": "Only turns of this conversation.",
        "role": "Only turns of this role.",
        "kind": "Only this kind of text.",
        "tag": "Only turns with this tag; with several, all of them.",
        "file": "Only turns that read or wrote this file (its path, or the end of the path).",
        "tool": "Only turns that called this tool.",
        "skill": "Only turns that used this skill.",
        "entity": "Only turns that name this person or thing.",
    }
    for name, help_text in reversed(help_texts.items()):
        values = _FILTER_VALUES.get(name)
        kind = click.Choice(values) if values else None
        function = click.option(f"--{name}", f"f_{name}", type=kind, multiple=True, help=help_text)(function)
    function = click.option("--until", "f_until", help="Only turns before this time: a date, or 30m, 12h, 7d, 4w ago.")(
        function
    )
    return click.option("--since", "f_since", help="Only turns since this time: a date, or 30m, 12h, 7d, 4w ago.")(
        function
    )


def build_filters(**options: Any) -> Filters:
    """Build the filters from the values of `add_filter_options`."""
    lists: dict[str, Any] = {f"{name}s": tuple(options[f"f_{name}"]) for name in _LIST_FILTERS}
    return Filters(
        **lists,
        entities=tuple(options["f_entity"]),
        since_at=parse_moment(options["f_since"]),
        until_at=parse_moment(options["f_until"]),
    )


# search -------------------------------------------------------------------------------------------------------


@command(
    "search",
    epilog="""\
  perdure search why did we choose sqlite
  perdure search '"connection refused"' --role tool --since 7d
  perdure search --file src/store.py               all turns that read or wrote a file, newest first
  perdure search --mode semantic how do we fasten boats
  perdure search TIDE-4711 --json""",
)
@click.argument("words", nargs=-1)
@add_filter_options
@click.option(
    "--limit", "-n", type=click.IntRange(1, 1000), default=20, show_default=True, help="Maximum number of turns."
)
@click.option(
    "--mode",
    type=click.Choice(["hybrid", "keyword", "semantic"]),
    help="Search words, meaning or both (default: both, after `perdure embed` has made vectors).",
)
@click.option("--explain", is_flag=True, help="Show the scores of each hit.")
@click.option("--scan", is_flag=True, help="Read the archive itself instead of the index (slow, complete).")
def search_command(
    shell: Shell, words: tuple[str, ...], limit: int, mode: str | None, explain: bool, scan: bool, **options: Any
) -> None:
    """Find turns by words, meaning and filters. "double quotes" search for an exact phrase. Any text is valid."""
    filters = build_filters(**options)
    if not words and filters == Filters():
        raise UsageError("say what to search for: words, or at least one filter")
    run_search(shell, " ".join(words), filters, limit=limit, mode=mode, explain=explain, scan=scan)


def run_search(
    shell: Shell, query: str, filters: Filters, *, limit: int, mode: str | None, explain: bool = False,
    scan: bool = False,
) -> None:  # fmt: skip
    """Search the home of this call and print the hits."""
    if query.strip() and mode != "keyword":
        shell.begin_loading_model()
    with shell.use_home() as home:
        result, reader = home.search(query, filters=filters, limit=limit, mode=mode, scan=scan), home.user
        if not result.hits and not shell.as_json:
            _print_nothing(shell, home, result, filters)
            return
    actions = _suggest_after_search(result, is_thin=shell.load_thin_rules() is not None)
    if shell.as_json:
        shell.print_json(_search_to_json(result, query), next_actions=actions)
        return
    _print_notices(shell, result)
    now = datetime.now(UTC)
    for number, (title, hits) in enumerate(_group_hits(result.hits)):
        shell.out.print(title if number == 0 else Text("\n") + title)
        for hit in hits:
            shell.out.print(_format_hit(hit, result.terms, reader, now))
            if explain:
                shell.out.print(f"      {_describe_hit(hit)}", style="dim", markup=False)
    if explain:
        _print_explanation(shell, result)
    shell.suggest(actions)


def _print_nothing(shell: Shell, home: Home | RemoteHome, result: SearchResult, filters: Filters) -> None:
    """Say that nothing was found; name the filters that no turn fits, or the way to begin in a home that is empty."""
    if isinstance(home, Home) and not home.archive.ledger.count_all()[0]:
        shell.out.print("Nothing is captured here yet. `perdure start` imports the sessions of your agents.")
        return
    _print_notices(shell, result)
    unknown = []
    for name in _LIST_FILTERS:
        for value in getattr(filters, f"{name}s"):
            only: dict[str, Any] = {f"{name}s": (value,)}
            if not home.search("", filters=Filters(**only), limit=1).hits:
                unknown.append(f"the {name} {value}")
    hint = f" No turn here has {' or '.join(unknown)}." if unknown else ""
    shell.out.print(text.printable(f"Nothing found.{hint}"), markup=False)


def _describe_hit(hit: Hit) -> str:
    return f"{hit.kind}, {format_scores(hit)}, run {hit.run_id}"


def _print_notices(shell: Shell, result: SearchResult) -> None:
    if "vector" in result.degraded:
        shell.note("Vectors were not available: only words were searched. `perdure doctor` shows the reason.")
    if result.n_unembedded:
        shell.note(f"{format_count(result.n_unembedded, 'chunk')} have no vector yet. Run `perdure embed`.")
    if "index" in result.degraded:
        shell.note("The index cannot be used, so the archive itself was searched. Run `perdure rebuild`.")
    if result.n_behind:
        shell.note(f"{format_count(result.n_behind, 'run')} not indexed yet; search again in a moment.")


def _print_explanation(shell: Shell, result: SearchResult) -> None:
    shell.out.print(f"searched for: {', '.join(result.terms) or '(filters only)'}", style="dim", markup=False)
    if result.dropped:
        shell.out.print(f"too frequent for ranking: {', '.join(result.dropped)}", style="dim", markup=False)
    modes = {"hybrid": "words and meaning", "semantic": "meaning (cosine)", "keyword": "keyword (BM25)"}
    method = "archive scan" if "index" in result.degraded else modes[result.mode]
    shell.out.print(f"{method}, {format_count(len(result.hits), 'turn')} in {result.took_ms:.1f} ms", style="dim")


def _suggest_after_search(result: SearchResult, *, is_thin: bool) -> Actions:
    if not result.hits and is_thin:
        return [("perdure doctor", "check that captures reach the home")]
    if not result.hits:
        return [("perdure status", "see what this home holds")]
    first = result.hits[0]
    return [
        (f"perdure show {first.turn_id}", "read the best hit in its conversation"),
        (f"perdure show {first.conversation}", "read the whole conversation"),
    ]


def _group_hits(hits: Sequence[Hit]) -> Iterator[tuple[Text, list[Hit]]]:
    """Group hits by conversation; the conversation with the best hit comes first."""
    groups: dict[str, list[Hit]] = {}
    for hit in hits:
        groups.setdefault(hit.conversation, []).append(hit)
    for conversation, members in groups.items():
        first = members[0]
        title = next((hit.title for hit in members if hit.title), "")
        header = Text(f"[Session: {text.one_line(title, 70) or conversation[:36]}]", style="bold")
        project = text.shorten_project(first.project)
        location = f"  {first.runtime} @{first.machine}"
        yield (
            header
            + Text(f"  {project}" if project else "", style="bold cyan")
            + Text(text.printable(location), style="dim"),
            members,
        )


def _format_hit(hit: Hit, terms: Sequence[str], reader: str, now: datetime) -> Text:
    speaker = hit.role.capitalize() if hit.author != "machine" else f"{hit.role.capitalize()} (machine)"
    row = Text("  ")
    row.append(f"{label_with_owner(speaker, hit.user, reader)}: ", style=ROLE_STYLES[hit.role])
    snippet, spans = text.snippet(text.printable(hit.text), terms, _SNIPPET_CHARS)
    snippet_text = Text(snippet.replace("\n", " "))
    for start, end in spans:
        snippet_text.stylize("bold yellow", start, end)
    row.append_text(snippet_text)
    file_text = text.describe_file(hit.runtime, hit.conversation, is_left=hit.abandoned)
    branch_text = f" [{text.printable(file_text)}]" if file_text else " [abandoned branch]" if hit.abandoned else ""
    marks_text = branch_text or (" [summary]" if hit.is_summary else "")
    marks_text += f" [{text.PICTURE_LABEL}]" if hit.kind == "picture" else ""
    row.append(f"{marks_text}  {format_time_and_age(hit.stated_at, now)}  {hit.turn_id}", style="dim")
    return row


def _search_to_json(result: SearchResult, query: str) -> dict[str, Any]:
    return {
        "query": query,
        "terms": result.terms,
        "dropped_terms": result.dropped,
        "degraded": result.degraded,
        "mode": result.mode,
        "chunks_unembedded": result.n_unembedded,
        "runs_behind": result.n_behind,
        "took_ms": round(result.took_ms, 3),
        "hits": [
            {
                "turn_id": hit.turn_id,
                "run_id": hit.run_id,
                "conversation": hit.conversation,
                "title": hit.title,
                "runtime": hit.runtime,
                "machine": hit.machine,
                "agent": hit.agent,
                "project": hit.project,
                "role": hit.role,
                "author": hit.author,
                "kind": hit.kind,
                "stated_at": hit.stated_at,
                "text": hit.text,
                "score": hit.score,
                "keyword_score": hit.keyword_score,
                "vector_score": hit.vector_score,
                "legs_score": hit.legs_score,
                "abandoned": hit.abandoned,
                "is_summary": hit.is_summary,
                "user": hit.user,
            }
            for hit in result.hits
        ],
    }


# show ---------------------------------------------------------------------------------------------------------


@command(
    "show",
    epilog="""\
  perdure show t7k2m9q              a turn, with two turns before and after it
  perdure show 01m4x8 --full        a run, with tool output in full
  perdure show 5f0c2a1b             a whole conversation
  perdure show mem-20260301-0930    a memory, with its sources and what it replaced""",
)
@click.argument("identifier", metavar="ID", shell_complete=complete_memory_ids)
@click.option(
    "--context",
    "-C",
    "n_context",
    type=click.IntRange(0, 100),
    default=2,
    show_default=True,
    help="Number of turns before and after the turn.",
)
@click.option("--full", is_flag=True, help="Show tool input and output in full.")
@click.option("--all", "everything", is_flag=True, help="Also show abandoned branches of the session.")
@click.option(
    "--raw", is_flag=True, help="Print the captured bytes unchanged; in runs that others share, secrets stay masked."
)
def show_command(shell: Shell, identifier: str, n_context: int, full: bool, everything: bool, raw: bool) -> None:
    """Show a turn, a run, a conversation or a memory, by the beginning of its id. Secrets are masked, except with
    --raw.
    """
    with shell.use_home() as home:
        if identifier.startswith(ID_PREFIX):
            from perdure.surfaces.cli import memories_read  # a search does not need it

            memories_read.show_memory(shell, home, identifier)
            return
        catch_up(home)
        kind, name = home.resolve(identifier)
        all_turns = placed_turns.load_placed_turns(home, kind, name)
        if raw:
            _print_bytes(home, kind, name, all_turns)
            return
        window_turns = placed_turns.select_window(all_turns, name, n_context) if kind == "turn" else all_turns
        abandoned_turns = [item for item in window_turns if item[2] and not everything]
        window_turns = [item for item in window_turns if everything or not item[2]]
        actions = _suggest_after_show(kind, name)
        actions = actions if kind == "run" or isinstance(home, Home) else actions[:1]  # there it can forget runs only
        if shell.as_json:
            result = {
                "kind": kind,
                "id": name,
                "turns": [_turn_to_json(*item) for item in window_turns],
                "abandoned_left_out": len(abandoned_turns),
            }
            shell.print_json(result, next_actions=actions)
            return
        _print_turns(shell, kind, name, window_turns, full=full, reader=home.user)
        if abandoned_turns:
            shell.note(
                f"{format_count(len(abandoned_turns), 'turn')} on abandoned branches of the session: "
                "left: add --all to see them."
            )
        shell.suggest(actions)


def catch_up(home: Home | RemoteHome) -> None:
    """Move what waits into the archive, if the archive can be written, and index what is archived."""
    if isinstance(home, Home) and home.writable:
        with contextlib.suppress(DiskFull, ReadOnlyHome, Busy):  # then show what the archive holds already
            home.captures.drain()
    home.upkeep.catch_up()


def _print_bytes(home: Home | RemoteHome, kind: str, name: str, all_turns: list[PlacedTurn]) -> None:
    """Write captured bytes to stdout: the lines of a turn, or everything of its runs."""
    sys.stdout.flush()
    write = sys.stdout.buffer.write
    if kind == "turn":
        run_id, offset = home.runs.locate_turn(name)
        turn = next(item_turn for _, item_turn, _ in all_turns if item_turn.offset == offset)
        for line_bytes in home.runs.raw_lines(run_id, [offset_from for offset_from, _ in turn.lines]):
            write(line_bytes + b"\n")
        return
    for run_id in dict.fromkeys(view.run_id for view, _, _ in all_turns if not view.sidechain):
        write(home.runs.raw(run_id))


def _print_turns(shell: Shell, kind: str, name: str, items: list[PlacedTurn], *, full: bool, reader: str) -> None:
    last_view: RunView | None = None
    for item in items:
        view, turn, abandoned = item
        if last_view is None or view.session != last_view.session:
            shell.out.print(_format_session(view, reader))
        last_view = view
        style = ROLE_STYLES[turn.role] + (
            " reverse" if kind == "turn" and placed_turns.get_turn_id(item) == name else ""
        )
        header = Text(
            f"{turn.role}{' (machine)' if turn.author == 'machine' and turn.role == 'user' else ''}", style=style
        )
        marks_text = (" [abandoned branch]" if abandoned else "") + (" [summary]" if turn.is_summary else "")
        sidechain_mark = " [sidechain]" if turn.thread else ""
        header.append(
            f"{marks_text}{sidechain_mark}  {format_time(turn.stated_at)}  {placed_turns.get_turn_id(item)}",
            style="dim",
        )
        shell.out.print(header)
        for part in turn.parts:
            shell.out.print(_format_part(part, view.project, full=full))
        shell.out.print()


def _format_session(view: RunView, reader: str) -> Text:
    owner_note = f"shared by {view.user}" if view.user != reader else ""
    title = text.one_line(view.title or view.intent, 80)
    names = (text.shorten_project(view.project), title, f"{view.runtime} @{view.machine}", owner_note)
    return Text(f"── {'  '.join(filter(None, names))} ──\n", style="bold")


def _format_part(part: Part, folder: str | None, *, full: bool) -> Text:
    part_text = describe_call(part.name, part.text, folder) if part.kind == "call" else mask(part.text)
    part_text = text.printable(part_text)
    if part.kind in ("call", "result", "thinking") and not full and len(part_text) > _RESULT_CHARS:
        part_text = f"{part_text[:_RESULT_CHARS]}\n… {len(part_text) - _RESULT_CHARS:,} more characters (--full)"
    if part.kind == "call":
        return Text("  → " + part_text.replace("\n", "\n    "), style="cyan")
    if part.kind == "result":
        return Text(f"  ← {part_text}", style="red" if part.is_error else "")
    return Text(part_text, style="dim italic" if part.kind == "thinking" else "")


def _turn_to_json(view: RunView, turn: Turn, abandoned: bool) -> dict[str, Any]:
    return {
        "turn_id": placed_turns.get_turn_id((view, turn, abandoned)),
        "run_id": view.run_id,
        "project": view.project,
        "role": turn.role,
        "author": turn.author,
        "stated_at": turn.stated_at,
        "abandoned": abandoned,
        "is_summary": turn.is_summary,
        "thread": turn.thread,
        "model": turn.model,
        "tokens": turn.n_tokens,
        "files": turn.files,
        "skills": turn.skills,
        "parts": [
            {"kind": p.kind, "text": mask(p.text), "name": p.name, "call_id": p.call_id, "is_error": p.is_error}
            for p in turn.parts
        ],
    }


def _suggest_after_show(kind: str, name: str) -> Actions:
    tree_actions = (
        [("perdure tree --root RUN", "see what a run spawned")]
        if kind != "run"
        else [(f"perdure tree --root {name}", "see what it spawned")]
    )
    return [*tree_actions, (f"perdure forget {name} --dry-run", "show what forgetting it would delete")]


# tree ---------------------------------------------------------------------------------------------------------


@command(
    "tree",
    epilog="""\
  perdure tree --since 7d
  perdure tree --runtime codex --limit 50
  perdure tree --root 01m4x8 --all""",
)
@click.option("--since", help="Only runs active since this time: a date, or 30m, 12h, 7d, 4w ago.")
@click.option("--runtime", help="Only this client, e.g. pi.")
@click.option("--root", help="Only the tree below this run.")
@click.option(
    "--limit",
    type=click.IntRange(1, 100_000),
    default=500,
    show_default=True,
    help="Maximum number of runs, newest first; trees are not cut.",
)
@click.option("--all", "everything", is_flag=True, help="Show every delta of long sessions.")
def tree_command(
    shell: Shell, since: str | None, runtime: str | None, root: str | None, limit: int, everything: bool
) -> None:
    """Draw runs as trees: the deltas of a session below each other; sub-agents and forks below the run that started
    them.
    """
    since_at = parse_moment(since)
    filters = Filters(since_at=since_at, runtimes=(runtime,) if runtime else ())
    with shell.use_home() as home:
        catch_up(home)
        top_run = home.resolve(root)[1] if root else None
        nodes, reader = home.runs.forest(filters, root=top_run, limit=limit), home.user
    if shell.as_json:
        shell.print_json({"runs": [_node_to_json(node, depth) for node, depth in _walk_nodes(nodes)]})
        return
    if not nodes:
        is_limited = bool(since or runtime)
        shell.out.print(
            "No run fits these limits."
            if is_limited
            else "No runs yet. `perdure import` captures the transcripts of your agents."
        )
        return
    now = datetime.now(UTC)
    for tree_row in draw_trees(nodes, now, fold=not everything, reader=reader):
        shell.out.print(tree_row)


def _walk_nodes(nodes: Sequence[Node]) -> Iterator[tuple[Node, int]]:
    stack = [(node, 0) for node in reversed(nodes)]
    while stack:
        node, depth = stack.pop()
        yield node, depth
        stack += [(child, depth + 1) for child in reversed(node.children)]


def _node_to_json(node: Node, depth: int) -> dict[str, Any]:
    run = node.run
    return {
        "run_id": run.run_id,
        "parent_run_id": run.parent_run_id,
        "root_run_id": run.root_run_id,
        "depth": depth,
        "user": run.user,
        "machine": run.machine,
        "runtime": run.runtime,
        "agent": run.agent,
        "project": run.project,
        "conversation": run.conversation,
        "session": run.session,
        "sidechain": run.sidechain,
        "fork": run.fork,
        "tags": run.tags,
        "models": run.models,
        "cwd": run.cwd,
        "path": run.path,
        "title": run.title,
        "intent": run.intent,
        "started_at": run.started_at,
        "ended_at": run.ended_at,
        "turns": run.n_turns,
        "calls": run.n_calls,
        "tokens": run.n_tokens,
        "skipped": dict(run.skipped),
        "malformed": run.n_malformed,
        "forgotten": run.n_forgotten,
        "bytes": run.jsonl_bytes,
    }
