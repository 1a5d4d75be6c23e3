"""A transcript as it is read: the session in which a run stands, from any of its turns on, piece by piece."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import quote, urlencode

from perdure.errors import NotFound
from perdure.formats.pictures import media_type, picture
from perdure.index.talk import SHOWN, Talk, Whole
from perdure.surfaces.http.runs import JSONL
from perdure.surfaces.page import stretches, transcript
from perdure.surfaces.page.stretches import Asked, Stretch
from perdure.surfaces.page.transcript import Said, Wish
from perdure.surfaces.page.visits import Answer, Moved, Sent, Shown, View, Visit
from perdure.text import one_line
from perdure.types import Filters, Found, Memory, RunView

_FILTERS = (("", "Everything"), ("words", "No tool calls"), ("person", "Only what the person said"))
_HITS = 30  # of a search within a session
_TITLE_CHARS = 100
_DIGITS = 6  # of the number of a part


def reader(visit: Visit) -> Answer:
    """The session of a run, at the turn that is asked for or at the run's first."""
    view, talk = visit.home.run(visit.path["run_id"]), visit.home.talk(visit.path["run_id"])
    asked, whole = _asked(visit), talk.whole()
    found = stretches.stretch(talk, asked)
    query = visit.query.get("q", "").strip()
    head = {
        "title": _title(view, whole), "view": view, "whole": whole, "above": talk.above(), "query": query,
        "hits": _hits(visit, view, query) if query else None, "filters": _filters(view, asked),
    }  # fmt: skip
    return Shown("reader.html", {**head, **_body(visit, view, talk, found)})


def _body(visit: Visit, view: RunView, talk: Talk, found: Stretch) -> dict[str, Any]:
    """The turns with what belongs to them, and where the talk goes on."""
    asked, is_unfolded = _asked(visit), visit.query.get("all") == "1"
    turns = _turns(visit, view, talk, found, asked)
    return {
        "asked": asked, "found": found, "folds": transcript.folded(turns), "is_unfolded": is_unfolded,
        "memories": _memories(talk, found, turns),
        "injections": stretches.injected_beside(visit.home, view, found.turns),
        "copied": None if asked.shown else stretches.copied_before(visit.home, talk, view, found),
        "links": _links(view, asked, found, is_unfolded=is_unfolded), "tail": _tail(visit, view, asked, found),
    }  # fmt: skip


def _asked(visit: Visit) -> Asked:
    query = visit.query
    shown = query.get("show", "")
    return Asked(query.get("from", ""), query.get("until", ""), query.get("at", ""), shown if shown in SHOWN else "")


def _turns(visit: Visit, view: RunView, talk: Talk, found: Stretch, asked: Asked) -> list[Said]:
    spawned = stretches.spawned_in(talk, found)
    wish = replace(_wish(visit, view), here=asked.at, is_words=asked.shown != "", spawned=spawned)
    return transcript.said(stretches.read(visit.home, found.turns), wish)


def _wish(visit: Visit, view: RunView) -> Wish:
    owner = "You" if view.user == visit.identity.user else view.user
    return Wish(owner=owner, folder=view.project or view.cwd or "")


def _title(view: RunView, whole: Whole) -> str:
    return one_line(whole.title or whole.intent or view.intent, _TITLE_CHARS) or f"Run {view.run_id}"


def _memories(talk: Talk, found: Stretch, turns: Sequence[Said]) -> dict[str, list[Memory]]:
    """Turn -> the memories that were made of it, or of a result that stands in it."""
    ids = {one.number: one.turn_id for one in found.turns}
    made = {ids[number]: kept for number, kept in talk.memories(list(ids)).items()}
    shown = {turn.turn_id: [memory for one in turn.inside for memory in made.get(one, [])] for turn in turns}
    return {turn: kept for turn, kept in shown.items() if kept}


def _hits(visit: Visit, view: RunView, query: str) -> Found:
    """What a search finds in the session."""
    mode = None if visit.server.is_warm() else "keyword"
    filters = Filters(conversations=(view.conversation,))
    return visit.home.search(query, filters=filters, limit=_HITS, mode=mode)


# addresses ------------------------------------------------------------------------------------------------------


def address(run_id: str, **wanted: str) -> str:
    """Where a transcript is read. wanted: what its query says, without what is empty."""
    query = urlencode({name: value for name, value in wanted.items() if value})
    return f"/runs/{run_id}" + (f"?{query}" if query else "")


def _links(view: RunView, asked: Asked, found: Stretch, *, is_unfolded: bool) -> dict[str, str]:
    """The addresses that a transcript leads to."""
    kept = {"show": asked.shown, "all": "1" if is_unfolded else ""}
    first = found.turns[0].turn_id if found.turns else ""
    following = found.following.turn_id if found.following else ""
    captured = str(view.parent_run_id) if view.sidechain else view.run_id
    return {
        "earlier": address(view.run_id, until=first, **kept) if first and found.has_earlier else "",
        "later": address(view.run_id, **{"from": following}, **kept) if following else "",
        "raw": f"/runs/{captured}/raw",
        "tree": f"/runs?root={quote(view.root_run_id)}",
        "share": f"/sharing?{urlencode({'scope': 'run', 'value': captured})}",
        "forget": f"/runs/{view.run_id}/forget",
    }  # fmt: skip


def _tail(visit: Visit, view: RunView, asked: Asked, found: Stretch) -> dict[str, Any] | None:
    """What follows the end of a talk while it goes on: how many turns have come since, and where they are."""
    if found.following or not found.turns or asked.shown:
        return None
    is_asked_again = visit.query.get("tail") == "1" and asked.since != ""
    last = asked.since if is_asked_again else found.turns[-1].turn_id
    return {
        "from": address(view.run_id, **{"from": last}, tail="1"), "href": address(view.run_id, **{"from": last}),
        "n": len(found.turns) - 1 if is_asked_again else 0,
    }  # fmt: skip


def _filters(view: RunView, asked: Asked) -> list[dict[str, Any]]:
    """The choices of what is shown, each where the reader stands now."""
    at = asked.at or asked.since or asked.until
    return [
        {"label": label, "href": address(view.run_id, at=at, show=name), "is_chosen": name == asked.shown}
        for name, label in _FILTERS
    ]


# turns and their parts ------------------------------------------------------------------------------------------


def turn(visit: Visit) -> Answer:
    """To the place of a turn in its transcript."""
    name = visit.path["turn_id"]
    return Moved(address(visit.home.talk(name).run_id, at=name) + f"#{name}")


def pieces(visit: Visit) -> Answer:
    """The parts of one turn from any of them on, with the results of its calls: for turns that hold very many."""
    name, since = visit.path["turn_id"], visit.query.get("from", "")
    view, talk = visit.home.run(visit.path["run_id"]), visit.home.talk(name)
    wish = replace(_wish(visit, view), here=name, skipped=int(since) if _is_number(since) else 0)
    one = transcript.said(stretches.read(visit.home, stretches.with_results(talk, name)), wish)[0]
    back = address(view.run_id, at=name) + f"#{name}"
    return Shown("reader_turn.html", {"title": "One turn", "one": one, "back": back})


def _is_number(said: str) -> bool:
    return said.isascii() and said.isdecimal() and len(said) <= _DIGITS


def part(visit: Visit) -> Answer:
    """One part of a turn in full, as far as a page can hold it."""
    found, said, n = _part(visit)
    piece = transcript.cut(said, n, transcript.PART_CHARS)
    title = f"{transcript.label(said.name) or said.kind} in full"
    back = address(visit.path["run_id"], at=found.turn_id) + f"#{found.turn_id}"
    return Shown("reader_part.html", {"title": title, "piece": piece, "back": back, "turn": found})


def _part(visit: Visit) -> tuple[Any, Any, int]:
    """(where the turn stands, its part, the number of that). Raises NotFound."""
    found, turn = stretches.turn_at(visit.home, visit.path["turn_id"])
    n = visit.path["n"]
    if not _is_number(n) or int(n) >= len(turn.parts):
        raise NotFound
    return found, turn.parts[int(n)], int(n)


def image(visit: Visit) -> Answer:
    """An image that stands in a turn: of a kind that a browser shows and cannot run, whatever its name says."""
    found, turn = stretches.turn_at(visit.home, visit.path["turn_id"])
    _, wanted, n = _part(visit)
    if wanted.kind != "image":
        raise NotFound
    nth = sum(one[:3] == wanted[:3] for one in turn.parts[:n])
    lines = visit.home.lines_of(found.captured_in, {low for low, _ in turn.lines})
    body = picture(lines, wanted, nth)
    kind = media_type(body) if body else None
    if body is None or kind is None:
        raise NotFound
    return Sent(body, kind, {"Content-Security-Policy": "default-src 'none'; sandbox", "Cache-Control": "no-store"})


def raw(visit: Visit) -> Answer:
    """The captured bytes of a run, to be kept as a file."""
    run_id = visit.home.run(visit.path["run_id"]).run_id
    body = visit.home.jsonl(run_id)
    return Sent(body, JSONL, {"Content-Disposition": f'attachment; filename="{run_id}.jsonl"'})


ROWS: tuple[View, ...] = (
    View("GET", "/runs/{run_id}", reader, nav="runs"),
    View("GET", "/turns/{turn_id}", turn, nav="runs"),
    View("GET", "/runs/{run_id}/turns/{turn_id}", pieces, nav="runs"),
    View("GET", "/runs/{run_id}/turns/{turn_id}/{n}", part, nav="runs"),
    View("GET", "/runs/{run_id}/images/{turn_id}/{n}", image, nav="runs"),
    View("GET", "/runs/{run_id}/raw", raw, nav="runs", desk="slow"),
)
