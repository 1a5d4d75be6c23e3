"""Commands that read: search, show, tree."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import click
from rich.text import Text

from perdure import text
from perdure.access.redact import mask
from perdure.capture.rules import Rules
from perdure.config import user_home
from perdure.errors import Busy, DiskFull, ReadOnlyHome, UsageError
from perdure.home import Home
from perdure.surfaces import afar, reading
from perdure.surfaces.cli.common import ROLE_STYLES, Actions, Shell, command, day, moment, plural
from perdure.surfaces.cli.memory import ID_PREFIX, complete_ids
from perdure.surfaces.reading import Placed, shared
from perdure.surfaces.trees import draw
from perdure.types import Filters, Found, Hit, Node, Part, RunView, Turn

_SNIPPET_CHARS = 240
_RESULT_CHARS = 1200  # of a tool's input or output in `show`, unless --full
_NAMED_ONCE = ("agent", "project", "runtime", "machine", "conversation", "role", "kind", "tag", "file", "tool", "skill")


def filter_options(function: Callable[..., None]) -> Callable[..., None]:
    """The options that limit what a search sees; each may be given several times (any of them; of tags, all)."""
    described = {
        "agent": "Of this agent.", "project": "In this project (its path, or the end of it).",
        "runtime": "Of this client, e.g. claude-code.", "machine": "Captured on this machine.",
        "conversation": "In this conversation.", "role": "user, assistant, tool or system.",
        "kind": "Only this kind of text: text, thinking, call or result.", "tag": "With this tag, or all of several.",
        "file": "That read or wrote this file (its path, or the end of it).", "tool": "That called this tool.",
        "skill": "That used this skill.", "entity": "That names this person or thing.",
    }  # fmt: skip
    for name, help_ in reversed(described.items()):
        function = click.option(f"--{name}", f"f_{name}", multiple=True, help=help_)(function)
    function = click.option("--until", "f_until", help="Said before: a date, or 30m, 12h, 7d, 4w ago.")(function)
    return click.option("--since", "f_since", help="Said since: a date, or 30m, 12h, 7d, 4w ago.")(function)


def chosen_filters(**given: Any) -> Filters:
    """Filters from the values of `filter_options`."""
    values: dict[str, Any] = {f"{name}s": tuple(given[f"f_{name}"]) for name in _NAMED_ONCE}
    return Filters(
        **values,
        entities=tuple(given["f_entity"]),
        since_at=moment(given["f_since"]),
        until_at=moment(given["f_until"]),
    )


# search -------------------------------------------------------------------------------------------------------


@command(
    "search",
    epilog="""\
  perdure search why did we choose sqlite
  perdure search '"connection refused"' --role tool --since 7d
  perdure search --file src/store.py               everything that touched a file, newest first
  perdure search --mode semantic how do we fasten boats
  perdure search TIDE-4711 --json""",
)
@click.argument("words", nargs=-1)
@filter_options
@click.option("--limit", "-n", type=click.IntRange(1, 1000), default=20, show_default=True, help="Turns to show.")
@click.option("--mode", type=click.Choice(["hybrid", "keyword", "semantic"]),
              help="By words, by meaning, or both (default: both, once `perdure embed` made vectors).")  # fmt: skip
@click.option("--explain", is_flag=True, help="Say how each hit was found.")
@click.option("--scan", is_flag=True, help="Read the archive itself instead of the index (slow, complete).")
def search_command(
    shell: Shell, words: tuple[str, ...], limit: int, mode: str | None, explain: bool, scan: bool, **given: Any
) -> None:
    """Find turns by words and filters. Any text is a safe query; "double quotes" ask for the very phrase."""
    filters = chosen_filters(**given)
    if not words and filters == Filters():
        raise UsageError("say what to search for: words, or at least one filter")
    query, thin = " ".join(words), shell.thin()
    if thin is not None:
        if scan:
            raise UsageError("--scan reads an archive, and this machine has none; run it at the home")
        with afar.opened(thin) as there:
            found, reader = there.search(query, filters, limit=limit, mode=mode), there.user
    else:
        with shell.open() as home:
            found, reader = home.search(query, filters=filters, limit=limit, mode=mode, scan=scan), home.user
    after = _after_search(found, is_thin=thin is not None)
    if shell.as_json:
        shell.answer(_search_json(found, query), next_actions=after)
        return
    _notices(shell, found)
    if not found.hits:
        shell.out.print("Nothing found.")
        return
    for number, (title, hits) in enumerate(_grouped(found.hits)):
        shell.out.print(title if number == 0 else Text("\n") + title)
        for hit in hits:
            shell.out.print(_hit_line(hit, found.terms, reader))
            if explain:
                shell.out.print(f"      {_why(hit)}", style="dim", markup=False)
    if explain:
        _explain(shell, found)
    shell.suggest(after)


def _why(hit: Hit) -> str:
    words = "" if hit.keyword_score is None else f", words {hit.keyword_score:.3f}"
    meaning = "" if hit.vector_score is None else f", meaning {hit.vector_score:.3f}"
    return f"{hit.kind}, score {hit.score:.3f}{words}{meaning}, run {hit.run_id}"


def _notices(shell: Shell, found: Found) -> None:
    if "vector" in found.degraded:
        shell.note("Without vectors: this answer comes from words alone. `perdure doctor` says why.")
    if found.n_unembedded:
        shell.note(f"{plural(found.n_unembedded, 'chunk')} without a vector yet: `perdure embed` makes them.")
    if "index" in found.degraded:
        shell.note("There is no usable index: this answer comes from scanning the archive. Run `perdure rebuild`.")
    if found.n_behind:
        shell.note(f"{plural(found.n_behind, 'run')} not indexed yet; search again in a moment.")


def _explain(shell: Shell, found: Found) -> None:
    shell.out.print(f"searched for: {', '.join(found.terms) or '(filters only)'}", style="dim", markup=False)
    if found.dropped:
        shell.out.print(f"too frequent to rank by: {', '.join(found.dropped)}", style="dim", markup=False)
    modes = {"hybrid": "words and meaning", "semantic": "meaning (cosine)", "keyword": "keyword (BM25)"}
    how = "archive scan" if "index" in found.degraded else modes[found.mode]
    shell.out.print(f"{how}, {plural(len(found.hits), 'turn')} in {found.took_ms:.1f} ms", style="dim")


def _after_search(found: Found, *, is_thin: bool) -> Actions:
    if not found.hits and is_thin:
        return [("perdure doctor", "see whether everything reaches the home")]
    if not found.hits:
        return [("perdure status", "see what this home holds")]
    first = found.hits[0]
    return [
        (f"perdure show {first.turn_id}", "read the best hit in its place"),
        (f"perdure show {first.conversation}", "read the whole conversation"),
    ]


def _grouped(hits: Sequence[Hit]) -> Iterator[tuple[Text, list[Hit]]]:
    """Hits by conversation; the conversation with the best hit first."""
    groups: dict[str, list[Hit]] = {}
    for hit in hits:
        groups.setdefault(hit.conversation, []).append(hit)
    for conversation, members in groups.items():
        first = members[0]
        head = Text(f"[Session: {text.one_line(first.title, 70) or conversation[:36]}]", style="bold")
        place = f"  {first.runtime} @{first.machine}  {_short(first.project)}"
        yield head + Text(text.printable(place), style="dim"), members


def _short(path: str | None) -> str:
    home = str(user_home())
    return path.replace(home, "~", 1) if path and path.startswith(home) else path or ""


def _hit_line(hit: Hit, terms: Sequence[str], reader: str) -> Text:
    who = hit.role.capitalize() if hit.author != "machine" else f"{hit.role.capitalize()} (machine)"
    line = Text("  ")
    line.append(f"{shared(who, hit.user, reader)}: ", style=ROLE_STYLES[hit.role])
    shown, spans = text.snippet(text.printable(hit.text), terms, _SNIPPET_CHARS)
    words = Text(shown.replace("\n", " "))
    for low, high in spans:
        words.stylize("bold yellow", low, high)
    line.append_text(words)
    marks = " [abandoned branch]" if hit.abandoned else " [summary]" if hit.is_summary else ""
    line.append(f"{marks}  {day(hit.stated_at)}  {hit.turn_id}", style="dim")
    return line


def _search_json(found: Found, query: str) -> dict[str, Any]:
    return {
        "query": query, "terms": found.terms, "dropped_terms": found.dropped, "degraded": found.degraded,
        "mode": found.mode, "chunks_unembedded": found.n_unembedded,
        "runs_behind": found.n_behind, "took_ms": round(found.took_ms, 3),
        "hits": [
            {
                "turn_id": hit.turn_id, "run_id": hit.run_id, "conversation": hit.conversation, "title": hit.title,
                "runtime": hit.runtime, "machine": hit.machine, "agent": hit.agent, "project": hit.project,
                "role": hit.role, "author": hit.author, "kind": hit.kind, "stated_at": hit.stated_at,
                "text": hit.text, "score": hit.score, "keyword_score": hit.keyword_score,
                "vector_score": hit.vector_score, "abandoned": hit.abandoned, "is_summary": hit.is_summary,
                "user": hit.user,
            }
            for hit in found.hits
        ],
    }  # fmt: skip


# show ---------------------------------------------------------------------------------------------------------


@command(
    "show",
    epilog="""\
  perdure show t7k2m9q              a turn, with the two before and after it
  perdure show 01m4x8 --full        a run, with tool output in full
  perdure show 5f0c2a1b             a whole conversation
  perdure show mem-20260301-0930    a memory, with its sources and what it replaced""",
)
@click.argument("identifier", metavar="ID", shell_complete=complete_ids)
@click.option(
    "--context",
    "-C",
    "n_context",
    type=click.IntRange(0, 100),
    default=2,
    show_default=True,
    help="Turns around a turn.",
)
@click.option("--full", is_flag=True, help="Do not shorten tool input and output.")
@click.option("--all", "everything", is_flag=True, help="Also branches that the session left.")
@click.option("--raw", is_flag=True, help="The captured bytes as they are; of what others share, masked.")
def show_command(shell: Shell, identifier: str, n_context: int, full: bool, everything: bool, raw: bool) -> None:
    """Show a turn, a run, a conversation or a memory by the beginning of its id. Secrets are masked, unless --raw."""
    if (thin := shell.thin()) is not None:
        _show_afar(shell, thin, identifier, n_context, full=full, raw=raw)
        return
    with shell.open() as home:
        if identifier.startswith(ID_PREFIX):
            from perdure.surfaces.cli import believed  # what a search does without

            believed.show(shell, home, identifier)
            return
        _caught_up(home)
        kind, name = home.resolve(identifier)
        chosen = reading.turns(home, kind, name)
        if raw:
            _raw(home, kind, name, chosen)
            return
        shown = reading.window(chosen, name, n_context) if kind == "turn" else chosen
        left = [item for item in shown if item[2] and not everything]
        shown = [item for item in shown if everything or not item[2]]
        if shell.as_json:
            result = {
                "kind": kind,
                "id": name,
                "turns": [_turn_json(*item) for item in shown],
                "abandoned_left_out": len(left),
            }
            shell.answer(result, next_actions=_after_show(kind, name))
            return
        _print_turns(shell, kind, name, shown, full=full, reader=home.user)
        if left:
            shell.note(f"{plural(len(left), 'turn')} on branches that the session left: add --all to see them.")
        shell.suggest(_after_show(kind, name))


def _show_afar(shell: Shell, thin: Rules, identifier: str, n_context: int, *, full: bool, raw: bool) -> None:
    """Show a turn, a run, a conversation or a memory of the remote home."""
    if identifier.startswith(ID_PREFIX):
        from perdure.surfaces.cli import believed, memory

        with memory.believing(shell) as home:
            believed.show(shell, home, identifier)
        return
    with afar.opened(thin) as there:
        found = there.resolve(identifier)
        if raw:
            _raw_afar(there, found)
            return
        shown, reader = there.turns(found), there.user
    shown = reading.window(shown, found.id, n_context) if found.kind == "turn" else shown
    after = _after_show(found.kind, found.id)
    after = after if found.kind == "run" else after[:1]  # forgetting takes a run from here
    if shell.as_json:
        turns = [_turn_json(*item) for item in shown]
        shell.answer({"kind": found.kind, "id": found.id, "turns": turns, "abandoned_left_out": 0}, next_actions=after)
        return
    _print_turns(shell, found.kind, found.id, shown, full=full, reader=reader)
    shell.suggest(after)


def _raw_afar(there: afar.Afar, found: afar.Named) -> None:
    """The bytes of runs on stdout."""
    if found.kind == "turn":
        raise UsageError("the bytes of a single turn are at the home; here, give its run")
    sys.stdout.flush()
    for run_id in found.runs:
        sys.stdout.buffer.write(there.jsonl(run_id))


def _caught_up(home: Home) -> None:
    """Bring what waits into the archive, as far as that can be written, and what is archived into the index."""
    if home.writable:
        with contextlib.suppress(DiskFull, ReadOnlyHome, Busy):  # what is there is read all the same
            home.drain()
    home.catch_up()


def _raw(home: Home, kind: str, name: str, chosen: list[Placed]) -> None:
    """Captured bytes on stdout: of a turn its lines, of runs everything."""
    sys.stdout.flush()
    write = sys.stdout.buffer.write
    if kind == "turn":
        run_id, offset = home.locate(name)
        turn = next(t for _, t, _ in chosen if t.offset == offset)
        for raw in home.lines_of(run_id, [low for low, _ in turn.lines]):
            write(raw + b"\n")
        return
    for run_id in dict.fromkeys(view.run_id for view, _, _ in chosen if not view.sidechain):
        write(home.jsonl(run_id))


def _print_turns(shell: Shell, kind: str, name: str, items: list[Placed], *, full: bool, reader: str) -> None:
    last: RunView | None = None
    for item in items:
        view, turn, abandoned = item
        if last is None or view.session != last.session:
            shell.out.print(_session_head(view, reader))
        last = view
        style = ROLE_STYLES[turn.role] + (" reverse" if kind == "turn" and reading.identifier(item) == name else "")
        head = Text(
            f"{turn.role}{' (machine)' if turn.author == 'machine' and turn.role == 'user' else ''}", style=style
        )
        marks = (" [abandoned branch]" if abandoned else "") + (" [summary]" if turn.is_summary else "")
        side = " [sidechain]" if turn.thread else ""
        head.append(f"{marks}{side}  {day(turn.stated_at)}  {reading.identifier(item)}", style="dim")
        shell.out.print(head)
        for part in turn.parts:
            shell.out.print(_part(part, full=full))
        shell.out.print()


def _session_head(view: RunView, reader: str) -> Text:
    title = text.one_line(view.title or view.intent, 80)
    whose = f"  shared by {view.user}" if view.user != reader else ""
    return Text(f"── {view.runtime} @{view.machine}{whose}  {_short(view.project)}  {title} ──\n", style="bold")


def _part(part: Part, *, full: bool) -> Text:
    words = text.printable(mask(part.text))
    if part.kind in ("call", "result", "thinking") and not full and len(words) > _RESULT_CHARS:
        words = f"{words[:_RESULT_CHARS]}\n… {len(words) - _RESULT_CHARS:,} more characters (--full)"
    if part.kind == "call":
        return Text(f"  → {part.name} {words}", style="cyan")
    if part.kind == "result":
        return Text(f"  ← {words}", style="red" if part.is_error else "")
    return Text(words, style="dim italic" if part.kind == "thinking" else "")


def _turn_json(view: RunView, turn: Turn, abandoned: bool) -> dict[str, Any]:
    return {
        "turn_id": reading.identifier((view, turn, abandoned)), "run_id": view.run_id, "role": turn.role,
        "author": turn.author, "stated_at": turn.stated_at, "abandoned": abandoned, "is_summary": turn.is_summary,
        "thread": turn.thread, "model": turn.model, "tokens": turn.n_tokens, "files": turn.files, "skills": turn.skills,
        "parts": [
            {"kind": p.kind, "text": mask(p.text), "name": p.name, "call_id": p.call_id, "is_error": p.is_error}
            for p in turn.parts
        ],
    }  # fmt: skip


def _after_show(kind: str, name: str) -> Actions:
    more = (
        [("perdure tree --root RUN", "see what a run spawned")]
        if kind != "run"
        else [(f"perdure tree --root {name}", "see what it spawned")]
    )
    return [*more, (f"perdure forget {name} --dry-run", "see what forgetting it would take away")]


# tree ---------------------------------------------------------------------------------------------------------


@command(
    "tree",
    epilog="""\
  perdure tree --since 7d
  perdure tree --runtime codex --limit 50
  perdure tree --root 01m4x8 --all""",
)
@click.option("--since", help="Runs active since: a date, or 30m, 12h, 7d, 4w ago.")
@click.option("--runtime", help="Only this client, e.g. pi.")
@click.option("--root", help="Only the tree below this run.")
@click.option(
    "--limit",
    type=click.IntRange(1, 100_000),
    default=500,
    show_default=True,
    help="Newest runs, in whole trees.",
)
@click.option("--all", "everything", is_flag=True, help="Do not fold long rows of deltas.")
def tree_command(
    shell: Shell, since: str | None, runtime: str | None, root: str | None, limit: int, everything: bool
) -> None:
    """Draw runs as trees: the deltas of a session below each other, sub-agents and forks below what spawned them."""
    since_at = moment(since)
    if (thin := shell.thin()) is not None:
        with afar.opened(thin) as there:
            top = there.run_named(root) if root else None
            at = since_at.isoformat() if since_at else None
            nodes, reader = there.forest(since=at, runtime=runtime, root=top, limit=limit), there.user
    else:
        filters = Filters(since_at=since_at, runtimes=(runtime,) if runtime else ())
        with shell.open() as home:
            _caught_up(home)
            top = home.resolve(root)[1] if root else None
            nodes, reader = home.forest(filters, root=top, limit=limit), home.user
    if shell.as_json:
        shell.answer({"runs": [_node_json(node, depth) for node, depth in _flat(nodes)]})
        return
    if not nodes:
        shell.out.print("No runs yet. `perdure import` captures what your agents have written.")
        return
    now = datetime.now(UTC)
    for line in draw(nodes, now, fold=not everything, reader=reader):
        shell.out.print(line)


def _flat(nodes: Sequence[Node]) -> Iterator[tuple[Node, int]]:
    stack = [(node, 0) for node in reversed(nodes)]
    while stack:
        node, depth = stack.pop()
        yield node, depth
        stack += [(child, depth + 1) for child in reversed(node.children)]


def _node_json(node: Node, depth: int) -> dict[str, Any]:
    run = node.run
    return {
        "run_id": run.run_id, "parent_run_id": run.parent_run_id, "root_run_id": run.root_run_id, "depth": depth,
        "user": run.user, "machine": run.machine, "runtime": run.runtime, "agent": run.agent, "project": run.project,
        "conversation": run.conversation, "session": run.session, "sidechain": run.sidechain, "fork": run.fork,
        "tags": run.tags, "models": run.models, "cwd": run.cwd, "path": run.path,
        "title": run.title, "intent": run.intent, "started_at": run.started_at,
        "ended_at": run.ended_at, "turns": run.n_turns, "calls": run.n_calls, "tokens": run.n_tokens,
        "skipped": dict(run.skipped), "malformed": run.n_malformed, "forgotten": run.n_forgotten,
        "bytes": run.jsonl_bytes,
    }  # fmt: skip
