"""Read a transcript: the session of a run, from any of its turns on; and forget a run or a turn.

Before anything is forgotten, a page lists what would be deleted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import quote, urlencode

from perdure.archive.forget import ForgetTarget
from perdure.errors import NotFound
from perdure.formats.parts import detect_image_type, extract_image
from perdure.home import Home
from perdure.index.threads import TURN_CHOICES, SessionThread, ThreadSummary
from perdure.surfaces.http.runs import JSONL_TYPE
from perdure.surfaces.units import format_forgotten
from perdure.surfaces.web import transcript, transcript_slices
from perdure.surfaces.web.transcript import RenderOptions, TurnView
from perdure.surfaces.web.transcript_slices import SliceRequest, TranscriptSlice
from perdure.surfaces.web.visits import HtmlPage, RawContent, Redirect, View, ViewResult, Visit
from perdure.text import one_line
from perdure.types import Filters, Memory, RunView, SearchResult

_FILTERS = (("", "Everything"), ("words", "No tool calls"), ("person", "Only messages of the person"))
_MAX_HITS = 30  # of a search within a session
_TITLE_CHARS = 100
_MAX_DIGITS = 6  # of the number of a part


def show_transcript(visit: Visit) -> ViewResult:
    """Show the session of a run, at the requested turn or at the run's first one."""
    view, thread = visit.home.runs.get(visit.path_params["run_id"]), visit.home.runs.thread(visit.path_params["run_id"])
    request, summary = _parse_request(visit), thread.summarise()
    turn_slice = transcript_slices.select_slice(thread, request)
    query = visit.query.get("q", "").strip()
    values = {
        "title": _make_title(view, summary),
        "view": view,
        "whole": summary,
        "above": thread.find_parent_run(),
        "query": query,
        "hits": _search_session(visit, view, query) if query else None,
        "filters": _make_filters(view, request),
    }
    return HtmlPage("reader.html", {**values, **_collect_slice(visit, view, thread, turn_slice)})


def _collect_slice(visit: Visit, view: RunView, thread: SessionThread, turn_slice: TranscriptSlice) -> dict[str, Any]:
    """Return the turns with what belongs to them, and the addresses of the slices before and after."""
    request, is_unfolded = _parse_request(visit), visit.query.get("all") == "1"
    turns = _render_slice(visit, view, thread, turn_slice, request)
    return {
        "asked": request,
        "found": turn_slice,
        "folds": transcript.group_turns(turns),
        "is_unfolded": is_unfolded,
        "memories": _find_memories(thread, turn_slice, turns),
        "injections": transcript_slices.find_injections(visit.home, view, turn_slice.turns),
        "copied": None if request.shown else transcript_slices.find_copied_turn(visit.home, thread, view, turn_slice),
        "links": _make_links(view, request, turn_slice, is_unfolded=is_unfolded),
        "tail": _make_tail(visit, view, request, turn_slice),
    }


def _parse_request(visit: Visit) -> SliceRequest:
    query = visit.query
    show = query.get("show", "")
    return SliceRequest(
        query.get("from", ""), query.get("until", ""), query.get("at", ""), show if show in TURN_CHOICES else ""
    )


def _render_slice(
    visit: Visit, view: RunView, thread: SessionThread, turn_slice: TranscriptSlice, request: SliceRequest
) -> list[TurnView]:
    spawned = transcript_slices.find_spawned(thread, turn_slice)
    options = replace(
        _make_options(visit, view), target_id=request.at, is_words_only=request.shown != "", spawned=spawned
    )
    return transcript.render_turns(transcript_slices.read_turns(visit.home, turn_slice.turns), options)


def _make_options(visit: Visit, view: RunView) -> RenderOptions:
    owner = "You" if view.user == visit.identity.user else view.user
    return RenderOptions(owner=owner, folder=view.project or view.cwd or "")


def _make_title(view: RunView, summary: ThreadSummary) -> str:
    return one_line(summary.title or summary.intent or view.intent, _TITLE_CHARS) or f"Run {view.run_id}"


def _find_memories(
    thread: SessionThread, turn_slice: TranscriptSlice, turns: Sequence[TurnView]
) -> dict[str, list[Memory]]:
    """Map each turn to the memories made from it, or from a result shown in it."""
    ids = {turn_id.number: turn_id.turn_id for turn_id in turn_slice.turns}
    memories_by_turn = {ids[number]: memories for number, memories in thread.find_memories(list(ids)).items()}
    shown_by_turn = {
        turn.turn_id: [memory for turn_id in turn.turn_ids for memory in memories_by_turn.get(turn_id, [])]
        for turn in turns
    }
    return {turn: memories for turn, memories in shown_by_turn.items() if memories}


def _search_session(visit: Visit, view: RunView, query: str) -> SearchResult:
    """Search within the session."""
    mode = None if visit.server.is_warm() else "keyword"
    filters = Filters(conversations=(view.conversation,))
    return visit.home.search(query, filters=filters, limit=_MAX_HITS, mode=mode)


# addresses ------------------------------------------------------------------------------------------------------


def to_transcript_url(run_id: str, **params: str) -> str:
    """Return the address of a transcript. params: its query; empty values are left out."""
    query = urlencode({name: value for name, value in params.items() if value})
    return f"/runs/{run_id}" + (f"?{query}" if query else "")


def _make_links(
    view: RunView, request: SliceRequest, turn_slice: TranscriptSlice, *, is_unfolded: bool
) -> dict[str, str]:
    """Return the addresses that a transcript links to."""
    params = {"show": request.shown, "all": "1" if is_unfolded else ""}
    first = turn_slice.turns[0].turn_id if turn_slice.turns else ""
    following = turn_slice.following.turn_id if turn_slice.following else ""
    captured = str(view.parent_run_id) if view.sidechain else view.run_id
    return {
        "earlier": to_transcript_url(view.run_id, until=first, **params) if first and turn_slice.has_earlier else "",
        "later": to_transcript_url(view.run_id, **{"from": following}, **params) if following else "",
        "raw": f"/runs/{captured}/raw",
        "tree": f"/runs?root={quote(view.root_run_id)}",
        "share": f"/sharing?{urlencode({'scope': 'run', 'value': captured})}",
        "forget": f"/runs/{view.run_id}/forget",
    }


def _make_tail(
    visit: Visit, view: RunView, request: SliceRequest, turn_slice: TranscriptSlice
) -> dict[str, Any] | None:
    """Return what follows the end of a running session: how many turns have come since, and their address."""
    if turn_slice.following or not turn_slice.turns or request.shown:
        return None
    is_asked_again = visit.query.get("tail") == "1" and request.since != ""
    last = request.since if is_asked_again else turn_slice.turns[-1].turn_id
    return {
        "from": to_transcript_url(view.run_id, **{"from": last}, tail="1"),
        "href": to_transcript_url(view.run_id, **{"from": last}),
        "n": len(turn_slice.turns) - 1 if is_asked_again else 0,
    }


def _make_filters(view: RunView, request: SliceRequest) -> list[dict[str, Any]]:
    """Return the display filters, each linking to the reader's current turn."""
    turn_id = request.at or request.since or request.until
    return [
        {
            "label": label,
            "href": to_transcript_url(view.run_id, at=turn_id, show=name),
            "is_chosen": name == request.shown,
        }
        for name, label in _FILTERS
    ]


# turns and their parts ------------------------------------------------------------------------------------------


def go_to_turn(visit: Visit) -> ViewResult:
    """Redirect to a turn in its transcript."""
    turn_id = visit.path_params["turn_id"]
    return Redirect(to_transcript_url(visit.home.runs.thread(turn_id).run_id, at=turn_id) + f"#{turn_id}")


def show_turn(visit: Visit) -> ViewResult:
    """Show the parts of one turn from any of them on, with the results of its calls: for very long turns."""
    turn_id, since = visit.path_params["turn_id"], visit.query.get("from", "")
    view, thread = visit.home.runs.get(visit.path_params["run_id"]), visit.home.runs.thread(turn_id)
    options = replace(_make_options(visit, view), target_id=turn_id, n_skipped=int(since) if _is_number(since) else 0)
    turn_view = transcript.render_turns(
        transcript_slices.read_turns(visit.home, transcript_slices.list_with_results(thread, turn_id)), options
    )[0]
    back_url = to_transcript_url(view.run_id, at=turn_id) + f"#{turn_id}"
    return HtmlPage("reader_turn.html", {"title": "One turn", "one": turn_view, "back": back_url})


def _is_number(value: str) -> bool:
    return value.isascii() and value.isdecimal() and len(value) <= _MAX_DIGITS


def show_part(visit: Visit) -> ViewResult:
    """Show one part of a turn in full, as far as a page can hold it."""
    location, turn_part, n = _find_part(visit)
    piece = transcript.cut_part(turn_part, n, transcript.PART_CHARS)
    title = f"{transcript.to_label(turn_part.name) or turn_part.kind} in full"
    back_url = to_transcript_url(visit.path_params["run_id"], at=location.turn_id) + f"#{location.turn_id}"
    return HtmlPage("reader_part.html", {"title": title, "piece": piece, "back": back_url, "turn": location})


def _find_part(visit: Visit) -> tuple[Any, Any, int]:
    """Return (the location of the turn, its part, the part's number). Raises NotFound."""
    location, turn = transcript_slices.find_turn(visit.home, visit.path_params["turn_id"])
    n = visit.path_params["n"]
    if not _is_number(n) or int(n) >= len(turn.parts):
        raise NotFound
    return location, turn.parts[int(n)], int(n)


def send_image(visit: Visit) -> ViewResult:
    """Send an image of a turn if browsers show its type and cannot run it, whatever its name says."""
    location, turn = transcript_slices.find_turn(visit.home, visit.path_params["turn_id"])
    _, image_part, _ = _find_part(visit)
    if image_part.kind != "image":
        raise NotFound
    lines = visit.home.runs.raw_lines(location.captured_in, {low for low, _ in turn.lines})
    body = extract_image(lines, image_part.digest)
    kind = detect_image_type(body) if body else None
    if body is None or kind is None:
        raise NotFound
    return RawContent(
        body, kind, {"Content-Security-Policy": "default-src 'none'; sandbox", "Cache-Control": "no-store"}
    )


def send_raw(visit: Visit) -> ViewResult:
    """Send the captured bytes of a run as a file."""
    run_id = visit.home.runs.get(visit.path_params["run_id"]).run_id
    body = visit.home.runs.raw(run_id)
    return RawContent(body, JSONL_TYPE, {"Content-Disposition": f'attachment; filename="{run_id}.jsonl"'})


READER_VIEWS: tuple[View, ...] = (
    View("GET", "/runs/{run_id}", show_transcript, nav="runs"),
    View("GET", "/turns/{turn_id}", go_to_turn, nav="runs"),
    View("GET", "/runs/{run_id}/turns/{turn_id}", show_turn, nav="runs"),
    View("GET", "/runs/{run_id}/turns/{turn_id}/{n}", show_part, nav="runs"),
    View("GET", "/runs/{run_id}/images/{turn_id}/{n}", send_image, nav="runs"),
    View("GET", "/runs/{run_id}/raw", send_raw, nav="runs", pool="slow"),
)


_MAX_FORGET_ROWS = 50  # turns and memories listed; the rest is counted


def ask_forget_run(visit: Visit) -> ViewResult:
    """Show what forgetting a run with all runs below it, or one of its turns, would delete."""
    name = _find_target(visit, visit.query.get("turn", ""))
    targets, memories = _plan_forget(visit.home, name)
    return HtmlPage("forget.html", _collect_forget_values(visit, name, targets, memories))


def forget_run(visit: Visit) -> ViewResult:
    """Forget what exists now, and no more than was shown."""
    name = _find_target(visit, visit.form.get("turn", ""))
    targets, memories = _plan_forget(visit.home, name)
    if visit.form.get("n") != str(len(targets)):
        message = "The data has changed since you opened this page: check the list again."
        return HtmlPage("forget.html", {**_collect_forget_values(visit, name, targets, memories), "said": message}, 409)
    visit.home.forgetting.apply(targets, memories=[memory.memory_id for memory in memories])
    return Redirect("/runs", f"Forgotten: {_format_counts(targets, memories)}.")


def _find_target(visit: Visit, turn: str) -> str:
    """Return the id to forget: a turn of the run, or the run. Raises NotFound for what is not the visitor's."""
    view = visit.home.runs.get(visit.path_params["run_id"])
    if view.user != visit.home.user:
        raise NotFound
    if turn:
        visit.home.runs.thread(view.run_id).find_position(turn)
    return turn or view.run_id


def _plan_forget(home: Home, name: str) -> tuple[list[ForgetTarget], list[Memory]]:
    targets = home.forgetting.plan([name])
    return targets, home.forgetting.memories_of(targets)


def _format_counts(targets: list[ForgetTarget], memories: list[Memory]) -> str:
    n_turns = sum(target.turn is not None for target in targets)
    other_lines = ", with the lines that are no turns" if n_turns < len(targets) else ""
    return format_forgotten(n_turns, "turn", len(memories)) + other_lines


def _collect_forget_values(
    visit: Visit, name: str, targets: list[ForgetTarget], memories: list[Memory]
) -> dict[str, Any]:
    is_turn = name != visit.path_params["run_id"]
    back_url = f"/turns/{name}" if is_turn else f"/runs/{name}"
    return {
        "title": "Forget a turn" if is_turn else "Forget a run",
        "run_id": visit.path_params["run_id"],
        "back": back_url,
        "turn": name if is_turn else "",
        "doomed": targets[:_MAX_FORGET_ROWS],
        "n": len(targets),
        "memories": memories[:_MAX_FORGET_ROWS],
        "n_memories": len(memories),
        "counted": _format_counts(targets, memories),
        "said": "",
        "left": visit.home.forgetting.floor_lines_quoting(targets, memories)[:_MAX_FORGET_ROWS],
        "files": sorted({item.run.path for item in targets if item.run.path})[:_MAX_FORGET_ROWS],
    }


FORGET_VIEWS: tuple[View, ...] = (
    View("GET", "/runs/{run_id}/forget", ask_forget_run, nav="runs", pool="slow"),
    View("POST", "/runs/{run_id}/forget", forget_run, nav="runs", pool="write"),
)
