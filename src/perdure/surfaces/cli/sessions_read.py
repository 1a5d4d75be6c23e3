"""The commands that read sessions: list, tree, show, export."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import msgspec
from rich.text import Text

from perdure import disk, text
from perdure.access.redact import mask
from perdure.errors import UsageError
from perdure.formats.perdure import AnyEntry, Boundary, Branch, Label, Message, Title
from perdure.home import Home
from perdure.identity import find_project
from perdure.session import export
from perdure.session.catalog import (
    ListedSession,
    SessionOverview,
    list_sessions,
    read_overview,
    resolve_name,
)
from perdure.session.log import read_path, read_tree
from perdure.session.tree import SessionTree
from perdure.surfaces.cli.common import ROLE_STYLES, Shell, command, format_count, format_time, format_time_and_age
from perdure.surfaces.session_costs import format_totals, list_costs, totals_to_json

_ROW_CHARS = 72  # of a message in a tree
_OUTPUT_CHARS = 2000  # of a tool's output in `show`, without --full
_ID_CHARS = 8  # of an id that a person reads


# list -----------------------------------------------------------------------------------------------------------


@command(
    "list",
    epilog="""\
  perdure sessions                    the 30 in which something was said last
  perdure sessions list --project     only those of the project of this folder
  perdure sessions list --limit 1000 --json""",
)
@click.option("--limit", type=click.IntRange(1, 100_000), default=30, show_default=True, help="Show at most so many.")
@click.option("--project", "is_project_only", is_flag=True, help="Only sessions of the project of this folder.")
def list_command(shell: Shell, limit: int, is_project_only: bool) -> None:
    """List sessions, the one in which something was said last first: number, id, title, model, tokens and cost."""
    with shell.open_home() as home:
        sessions = list_sessions(home)
    if is_project_only:
        project = find_project(str(Path.cwd()))
        sessions = [item for item in sessions if item.overview.project == project]
    shown = sessions[:limit]
    actions = [("perdure sessions tree ID", "see branches and compactions"), ("perdure chat --resume ID", "go on")]
    if shell.as_json:
        result = {"sessions": [session_to_json(item) for item in shown], "n_sessions": len(sessions)}
        shell.print_json(result, next_actions=actions)
        return
    if not shown:
        shell.out.print("No sessions yet. `perdure chat` or `perdure ask` begins one.", markup=False)
        return
    now = datetime.now(UTC)
    for item in shown:
        for row in _draw_session(item, now):
            shell.out.print(row)
    if len(sessions) > limit:
        shell.note(f"{format_count(len(sessions) - limit, 'older session')}: --limit shows more.")
    shell.suggest(actions)


def _draw_session(item: ListedSession, now: datetime) -> Iterator[Text]:
    overview = item.overview
    row = Text(f"{item.number:>4}  ", style="dim")
    row.append(overview.session[:_ID_CHARS], style="cyan")
    row.append(f"  {text.printable(overview.title) or 'nothing said yet'}")
    yield row
    kinship = describe_kinship(overview)
    names = (
        format_time_and_age(overview.updated_at, now),
        text.shorten_project(overview.project),
        text.printable(overview.model),
        format_count(overview.n_messages, "message"),
        format_count(len(overview.boundaries), "compaction") if overview.boundaries else "",
        format_totals(overview.totals),
        kinship,
    )
    yield Text("      " + ", ".join(filter(None, names)), style="dim")
    if item.chain_totals != overview.totals and item.root == overview.session:
        yield Text(f"      with its forks and sub-agents: {format_totals(item.chain_totals)}", style="dim")


def describe_kinship(overview: SessionOverview) -> str:
    """Say of which session this one is a fork or a sub-agent; "" for none."""
    if not overview.parent_session:
        return ""
    return f"{'fork' if overview.is_fork else 'sub-agent'} of {overview.parent_session[:_ID_CHARS]}"


def session_to_json(item: ListedSession) -> dict[str, Any]:
    """Return a session of the list for programs."""
    return {
        "number": item.number,
        **_overview_to_json(item.overview),
        "root": item.root,
        "chain_totals": totals_to_json(item.chain_totals),
    }


def _overview_to_json(overview: SessionOverview) -> dict[str, Any]:
    fields = {name: getattr(overview, name) for name in overview.__struct_fields__}
    by_job = {job: totals_to_json(totals) for job, totals in overview.totals_by_job.items()}
    return {**fields, "totals": totals_to_json(overview.totals), "totals_by_job": by_job}


# tree -----------------------------------------------------------------------------------------------------------


@command(
    "tree",
    epilog="""\
  perdure sessions tree               all chains, with their compactions
  perdure sessions tree s7k2          one chain: branches, forks, labels; the ids resume there
  perdure sessions tree last --all    with every entry""",
)
@click.argument("identifier", metavar="[ID]", default="")
@click.option("--all", "everything", is_flag=True, help="Also show answers, tool calls and results.")
@click.option("--limit", type=click.IntRange(1, 100_000), default=100, show_default=True, help="Sessions at most.")
def tree_command(shell: Shell, identifier: str, everything: bool, limit: int) -> None:
    """Draw the chain of a session, from its root to its forks: messages, compactions, branches that were left, labels,
    and where it goes on. Without an ID, draw all chains with their compactions.
    """
    with shell.open_home() as home:
        sessions = list_sessions(home)
        trees: dict[str, SessionTree] = {}
        if identifier:
            name, _ = resolve_name(home, identifier, cwd=str(Path.cwd()))
            root = next(item.root for item in sessions if item.overview.session == name)
            sessions = [item for item in sessions if item.root == root]
            trees = {item.overview.session: read_tree(home, item.overview.session) for item in sessions}
    ordered = _order_chains(sessions, limit)
    if shell.as_json:
        rows = [
            {**session_to_json(item), "depth": depth, **_tree_to_json(trees.get(item.overview.session))}
            for item, depth in ordered
        ]
        shell.print_json({"sessions": rows})
        return
    if not ordered:
        shell.out.print("No sessions yet. `perdure chat` or `perdure ask` begins one.", markup=False)
    now = datetime.now(UTC)
    forks: dict[str, list[SessionOverview]] = {}
    for item, _ in ordered:
        forks.setdefault(item.overview.parent, []).append(item.overview)
    for item, depth in ordered:
        indent = "   " * depth + ("└─ " if depth else "")
        for row in _draw_session(item, now):
            shell.out.print(Text(indent) + row)
            indent = "   " * (depth + bool(depth))
        if item.overview.session in trees:
            for row in _draw_entries(trees[item.overview.session], forks, everything=everything):
                shell.out.print(Text(indent + "      ") + row)
        else:
            for boundary in item.overview.boundaries:
                shell.out.print(Text(f"{indent}      ◆ {boundary}  compaction", style="yellow"))


def _order_chains(sessions: Sequence[ListedSession], limit: int) -> list[tuple[ListedSession, int]]:
    """Return each session with its depth: below the session that it continues; chains in the order of the list."""
    by_parent: dict[str, list[ListedSession]] = {}
    names = {item.overview.session for item in sessions}
    for item in sessions:
        parent = item.overview.parent_session if item.root != item.overview.session else ""
        by_parent.setdefault(parent if parent in names else "", []).append(item)
    ordered: list[tuple[ListedSession, int]] = []
    stack = [(item, 0) for item in reversed(by_parent.get("", []))]
    while stack and len(ordered) < limit:
        item, depth = stack.pop()
        ordered.append((item, depth))
        stack += [(child, depth + 1) for child in by_parent.get(item.overview.session, ())]
    return ordered


def _tree_to_json(tree: SessionTree | None) -> dict[str, Any]:
    if tree is None:
        return {}
    path_ids, labels = {entry.id for entry in tree.find_path()}, tree.list_labels()
    rows = [
        {
            "id": entry.id,
            "parent": tree.get_parent(entry.id),
            "kind": describe_kind(entry),
            "at": entry.timestamp,
            "text": _describe_entry(entry),
            "label": labels.get(entry.id, ""),
            "is_on_path": entry.id in path_ids,
            "is_leaf": entry.id == tree.leaf,
        }
        for entry in tree
    ]
    return {"entries": rows}


def describe_kind(entry: AnyEntry) -> str:
    """Return the role of a message, or the type of another entry."""
    return entry.role if isinstance(entry, Message) else str(type(entry).__struct_config__.tag)


def _describe_entry(entry: AnyEntry) -> str:
    """Return an entry on one line, masked."""
    if isinstance(entry, Message):
        calls = "".join(f" → {call.name}" for call in entry.calls)
        return text.one_line(mask(entry.text), _ROW_CHARS) + calls
    if isinstance(entry, Boundary):
        return f"compaction, {entry.n_before:,} → {entry.n_after:,} tokens"
    if isinstance(entry, Branch):
        return text.one_line(mask(entry.summary), _ROW_CHARS) or f"another way was left at {entry.left}"
    return text.one_line(mask(entry.text), _ROW_CHARS) if isinstance(entry, Label | Title) else ""


def _draw_entries(
    tree: SessionTree, forks: Mapping[str, Sequence[SessionOverview]], *, everything: bool
) -> Iterator[Text]:
    """Yield the lines of one session. The way that goes on keeps its indent; ways that were left stand deeper."""
    children, labels = tree.list_children(), tree.list_labels()
    path_ids = {entry.id for entry in tree.find_path()}
    stack = [(entry_id, "") for entry_id in reversed(children.get("", []))]
    while stack:
        entry_id, indent = stack.pop()
        entry = tree.get(entry_id)
        if entry is None or isinstance(entry, Label | Title):
            continue
        is_shown = everything or isinstance(entry, Boundary) or describe_kind(entry) == "user" or entry_id in labels
        if is_shown or entry_id == tree.leaf or entry_id in forks or (isinstance(entry, Branch) and entry.summary):
            yield _draw_entry(entry, indent, labels.get(entry_id, ""), is_left=entry_id not in path_ids) + Text(
                "  ← it goes on here" if entry_id == tree.leaf else "", style="bold green"
            )
        for fork in forks.get(entry_id, ()):
            yield Text(f"{indent}⤷ {fork.session}  {text.printable(fork.title)}", style="magenta")
        followers = [child for child in children.get(entry_id, ()) if not isinstance(tree.get(child), Label | Title)]
        going_on = next((child for child in followers if child in path_ids), followers[-1] if followers else "")
        left = [child for child in followers if child != going_on]
        stack += [(going_on, indent)] if going_on else []
        stack += [(child, indent + "│  ") for child in reversed(left)]


def _draw_entry(entry: AnyEntry, indent: str, label: str, *, is_left: bool) -> Text:
    kind = describe_kind(entry)
    mark = {"boundary": "◆", "branch": "⎇"}.get(kind, "·")
    style = "dim" if is_left else ROLE_STYLES.get(kind, "yellow" if kind == "boundary" else "")
    row = Text(f"{indent}{mark} ", style="dim")
    row.append(f"{entry.id}  ", style="dim cyan")
    row.append(text.printable(_describe_entry(entry)) or kind, style=style)
    if label:
        row.append(f"  [{text.printable(text.one_line(label, 40))}]", style="bold yellow")
    return row


# show -----------------------------------------------------------------------------------------------------------


@command(
    "show",
    epilog="""\
  perdure sessions show last          the whole conversation, as it goes on
  perdure sessions show e4m9          one entry in full
  perdure sessions show e4m9 --path   the conversation that leads to it""",
)
@click.argument("identifier", metavar="ID")
@click.option("--path", "is_path", is_flag=True, help="Of an entry, show the conversation that leads to it.")
@click.option("--full", is_flag=True, help="Show tool output in full.")
def show_command(shell: Shell, identifier: str, is_path: bool, full: bool) -> None:
    """Show a session from its beginning (of a fork, from that of its origin), or one entry in full. Secrets are
    masked.
    """
    with shell.open_home() as home:
        session, entry_id = resolve_name(home, identifier, cwd=str(Path.cwd()))
        overview, path = read_overview(home, session), read_path(home, session, entry_id)
    if entry_id and not is_path:
        path, full = path[-1:], True
    if shell.as_json:
        entries = [mask_entry(entry) for entry in path]
        shell.print_json({"session": _overview_to_json(overview), "entries": entries})
        return
    shell.out.print(Text(f"── {text.printable(overview.title)}  {overview.session} ──\n", style="bold"))
    for entry in path:
        for row in _draw_in_full(entry, full=full):
            shell.out.print(row)
    if overview.totals_by_job and not entry_id:
        for line in list_costs(overview.totals_by_job):
            shell.out.print(Text(line, style="dim"))
    shell.suggest([(f"perdure chat --resume {(entry_id or session)[:_ID_CHARS]}", "go on from here")])


def mask_entry(entry: AnyEntry) -> dict[str, Any]:
    """Return an entry for programs, with every secret masked, and without what providers wrote in their own form."""
    fields: dict[str, Any] = msgspec.to_builtins(entry)
    fields.pop("native", None)
    if isinstance(entry, Message) and entry.images:
        fields["images"] = [{"media_type": image.media_type} for image in entry.images]
    return {name: export.mask_value(value, mask) for name, value in fields.items()}


def _draw_in_full(entry: AnyEntry, *, full: bool) -> Iterator[Text]:
    kind = describe_kind(entry)
    if isinstance(entry, Boundary):
        yield Text(f"── ◆ {_describe_entry(entry)}  {entry.id} ──", style="yellow")
        yield Text(text.printable(mask(entry.summary)) + "\n", style="dim")
        return
    if not isinstance(entry, Message):
        if words := _describe_entry(entry):
            yield Text(f"── {kind}: {text.printable(words)}  {entry.id} ──\n", style="dim")
        return
    header = Text(f"{kind} {entry.tool}".strip() + (" (error)" if entry.is_error else ""), style=ROLE_STYLES[kind])
    yield header.append(f"  {format_time(entry.timestamp)}  {entry.id}", style="dim")
    body = text.printable(mask(entry.text))
    if entry.role == "tool" and not full and len(body) > _OUTPUT_CHARS:
        body = f"{body[:_OUTPUT_CHARS]}\n… {len(body) - _OUTPUT_CHARS:,} more characters (--full)"
    if entry.thought and full:
        yield Text(text.printable(mask(entry.thought)), style="dim italic")
    if body:
        yield Text(body)
    for file in entry.files:
        n_lines = format_count(file.text.count("\n") + 1, "line")
        yield Text(f"[{text.printable(file.path)}, {n_lines}]", style="dim")
        if full:
            yield Text(text.printable(mask(file.text)), style="dim")
    for image in entry.images:
        yield Text(f"[{text.printable(image.media_type)}]", style="dim")
    for call in entry.calls:
        value = text.one_line(mask(msgspec.json.encode(call.input).decode()), _OUTPUT_CHARS if full else 160)
        yield Text(f"  → {text.printable(call.name)} {value}", style="cyan")
    yield Text("")


# export ---------------------------------------------------------------------------------------------------------


@command(
    "export",
    epilog="""\
  perdure sessions export last > plan.md
  perdure sessions export s7k2 --out plan.md
  perdure sessions export e4m9 --json      the branch that ends with this entry""",
)
@click.argument("identifier", metavar="ID")
@click.option("--out", "target", metavar="FILE", help="Write into this file instead of standard output.")
@click.option("--raw", "is_raw", is_flag=True, help="Do not mask secrets.")
def export_command(shell: Shell, identifier: str, target: str | None, is_raw: bool) -> None:
    """Write every message of a conversation in full, from its beginning; compactions change nothing of it. Secrets are
    masked, except with --raw.
    """
    with shell.open_home() as home:
        document = _make_document(shell, home, identifier, is_raw=is_raw)
    if target is None:
        sys.stdout.buffer.write(document)
        sys.stdout.flush()
        return
    path = Path(target)
    if not path.parent.is_dir():
        raise UsageError(f"there is no folder {path.parent}")
    disk.replace_file(path, document)
    shell.note(f"Written to {path}.")


def _make_document(shell: Shell, home: Home, identifier: str, *, is_raw: bool) -> bytes:
    session, entry_id = resolve_name(home, identifier, cwd=str(Path.cwd()))
    overview, path = read_overview(home, session), read_path(home, session, entry_id)
    hide = _keep if is_raw else mask
    if not shell.as_json:
        return export.to_markdown(overview, path, hide).encode("utf-8", "replace")
    head = {"session": session, "title": overview.title, "created_at": overview.created_at, "cwd": overview.cwd}
    return msgspec.json.encode({**head, "messages": export.list_messages(path, hide)}) + b"\n"


def _keep(words: str) -> str:
    return words
