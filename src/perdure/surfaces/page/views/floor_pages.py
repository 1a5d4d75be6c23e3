"""A page of the floor: read, edited, its history with what each change made, an old state brought back, taken away.

What is shown is masked. An edit counts only where the page still says what its writer had read; else what was typed is
kept and shown beside what came between. Every change is the owner's, and none is silent: the journal has them all.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import quote

from perdure.access.redact import mask
from perdure.access.scan import Finding
from perdure.errors import EditRefused, FloorMissing, IndexFault, UsageError
from perdure.floor import layers, notes, pages
from perdure.floor.events import sha
from perdure.floor.floor import Change, Floor
from perdure.floor.state import KEPT_VERSIONS, Version
from perdure.home import Home
from perdure.surfaces import differences
from perdure.surfaces.moments import written_at
from perdure.surfaces.page import addresses
from perdure.surfaces.page.visits import Answer, Moved, Shown, View, Visit
from perdure.text import printable, tokens

T = TypeVar("T")

HERE = "/floor"
NEXT_SESSION = "In force from the next session on."
_SHOWN = 50  # states or cards on one page
_DIGITS = 9  # fewer has a number that somebody means
_LABELS = {
    pages.SYSTEM: ("System prompt", "who the agent is and by which rules it works"),
    pages.PROFILE: ("Profile", "who you are, in your words: no agent writes here"),
    pages.CORE: ("Core", "what is always true"),
    pages.NOTES: ("Notes", "what was worth noting, a line each, newest last"),
    pages.RECENT: ("Recent", "what has been going on; a job brings it up to date every few minutes"),
    pages.SETTINGS: ("Settings of the agent", "its name, its tools, how many turns it may take"),
}


def label(name: str) -> str:
    """What a page is called."""
    if name in _LABELS:
        return _LABELS[name][0]
    folder, _, rest = name.partition("/")
    return f"Diary of {rest.removesuffix('.md')}" if folder == pages.DIARY else f"Skill {rest.partition('/')[0]}"


def address(name: str, act: str = "") -> str:
    """Where a page is shown, or what can be done to it.

    >>> address("notes.md"), address("diary/2026-11-21.md", "history")
    ('/floor/notes', '/floor/diary/2026-11-21/history')
    """
    return f"{HERE}/{quote(name.removesuffix('.md'))}{f'/{act}' if act else ''}"


def typed(said: str) -> str:
    """What a form sends of a textarea, with the ends of lines that the floor has."""
    return said.replace("\r\n", "\n").replace("\r", "\n")


def projects(home: Home) -> list[str]:
    """The projects for which something can be on the floor, by their paths; none while there is no index to tell."""
    with contextlib.suppress(IndexFault):
        return [project for project in home.projects(is_own=True) if project]
    return []


def project(home: Home, said: str) -> str:
    """The project that an address or a form means, by its path."""
    return addresses.named(said, lambda: projects(home))


def page_values(home: Home, name: str) -> dict[str, Any]:
    """What every view of a page says of it."""
    return {
        "title": label(name), "name": name, "about": _LABELS.get(name, ("", ""))[1], "here_page": address(name),
        "n_proposals": len(home.floor.proposals()),
    }  # fmt: skip


# read -----------------------------------------------------------------------------------------------------------


def page(visit: Visit) -> Answer:
    """A page as it stands, who changed it last, and whether it is before a model."""
    name = pages.checked(visit.path["page"])
    if name.startswith(f"{pages.DIARY}/"):
        return Moved(f"/diary?day={name[len(pages.DIARY) + 1 : -len('.md')]}")
    return shown(visit, name)


def shown(visit: Visit, name: str, *, refused: str = "", kept: str = "") -> Shown:
    """refused: why a note was not taken; kept: what it said."""
    floor = visit.home.floor
    said = floor.read(name)
    if not said and name not in pages.KNOWN and name not in floor.known().pages:
        raise FloorMissing
    lines = _lines(floor, said) if name == pages.NOTES else ()
    values = page_values(visit.home, name) | {
        "text": printable(mask(said)), "n_tokens": tokens(said), "last": _last(floor, name),
        "suspects": () if any(line.is_held for line in lines) else suspects(floor, said), "lines": lines,
        "is_markdown": name.endswith(".md"), "alerts": [printable(alert) for alert in floor.alerts],
        "refused": refused, "kept": kept, "projects": projects(visit.home) if name == pages.NOTES else (),
    }  # fmt: skip
    return Shown("floor_page.html", values, 400 if refused else 200)


def _last(floor: Floor, name: str) -> dict[str, Any] | None:
    """How the text that stands there came about; None where nobody wrote the page."""
    found = floor.known().pages.get(name)
    return state(found.now) if found else None


def suspects(floor: Floor, said: str) -> list[Finding]:
    """Why a text would be left out of every context; its words are masked."""
    found = floor.suspicious(layers.injected(said)) if said else ()
    return [Finding(one.rule, printable(mask(one.excerpt)), one.score) for one in found[:3]]


@dataclass(frozen=True, slots=True)
class Note:
    """A line of the notes, as a person sees it."""

    words: str
    is_heading: bool
    memory: str  # the id of the memory that it repeats
    project: str
    name: str  # of the raw line, by which it is taken out
    is_held: bool  # kept from models, because it reads like an instruction to one


def _lines(floor: Floor, said: str) -> list[Note]:
    """The lines of the notes that say something, in their order."""
    found = [notes.read(raw) for raw in said.splitlines()]
    return [_line(floor, one) for one in found if one.words and one.words != notes.HEADING]


def _line(floor: Floor, one: notes.Line) -> Note:
    is_held = bool(floor.suspicious(layers.injected(one.raw)))
    words, project = printable(mask(one.words)), printable(one.project)
    return Note(words, not one.is_note, one.memory, project, sha(one.raw), is_held)


# edit -----------------------------------------------------------------------------------------------------------


def edit(visit: Visit) -> Answer:
    """The text of a page to be changed, with the name of the text that its writer reads."""
    name = pages.checked(visit.path["page"])
    said = visit.home.floor.read(name)
    return _form(visit, name, {"typed": mask(said), "base": _name(said)})


def save(visit: Visit) -> Answer:
    """Give a page a new text, where it still says what the writer had read."""
    name, form = pages.checked(visit.path["page"]), visit.form
    fresh, base, why = typed(form.get("text", "")), form.get("base", ""), form.get("why", "").strip()
    before: list[str] = []

    def change(old: str) -> Change | None:
        before.append(old)
        return Change(fresh, "owner", why) if base == _name(old) else None

    floor = visit.home.floor
    kept = {"typed": fresh, "why": why}
    try:
        made = floor.rework(name, change)
    except EditRefused as error:
        return _form(visit, name, kept | {"base": base, "refused": error.detail})
    if made is None:
        rows = differences.rows(mask(before[0]), mask(fresh))
        return _form(visit, name, kept | {"base": _name(before[0]), "rows": rows, "is_late": True})
    is_new = floor.read(name) != before[0]
    return Moved(address(name), written(floor, name) if is_new else "It says that already: nothing was changed.")


def _name(said: str) -> str:
    """The name of the text that a writer had read; "" where there was none."""
    return sha(said) if said else ""


def written(floor: Floor, name: str) -> str:
    """What a person is told of a page that was written."""
    found = suspects(floor, floor.read(name))
    if found:
        return f"Written. It reads like an instruction to a model ({found[0].rule}): none gets it until you allow it."
    return f"Written. {NEXT_SESSION}"


def _form(visit: Visit, name: str, more: dict[str, Any]) -> Shown:
    """The page on which a text is changed: with what was typed, and why that was not taken."""
    said = visit.home.floor.read(name)
    values: dict[str, Any] = page_values(visit.home, name) | {
        "title": f"Edit {label(name)}", "is_masked": mask(said) != said, "why": "", "refused": "", "rows": (),
        "is_late": False,
    }  # fmt: skip
    values |= more
    return Shown("floor_edit.html", values, 409 if values["is_late"] else 400 if values["refused"] else 200)


# history --------------------------------------------------------------------------------------------------------


def history(visit: Visit) -> Answer:
    """Every state of a page at hand, newest first: when, by whom, why."""
    name = pages.checked(visit.path["page"])
    versions = _versions(visit.home.floor, name)
    shown, older = part(versions[::-1], visit.query.get("from", ""))
    values = page_values(visit.home, name) | {
        "title": f"History of {label(name)}", "versions": [state(one) for one in shown],
        "current": versions[-1].event, "more": f"{address(name, 'history')}?from={older}" if older else "",
        "is_whole": len(versions) < KEPT_VERSIONS,
    }  # fmt: skip
    return Shown("floor_history.html", values)


def part(items: Sequence[T], said: str) -> tuple[Sequence[T], int]:
    """(the part of a list that an address asks for by where it begins, where the next one does: 0 behind the last).

    >>> part("abc", "nonsense"), part(range(60), "50")
    (('abc', 0), (range(50, 60), 0))
    """
    low = int(said) if said.isascii() and said.isdecimal() and len(said) < _DIGITS else 0
    high = low + _SHOWN
    return items[low:high], high if high < len(items) else 0


def _versions(floor: Floor, name: str) -> Sequence[Version]:
    """The states of a page that are at hand, oldest first. Raises FloorMissing."""
    floor.read(name)
    found = floor.known().pages.get(name)
    if found is None or not found.versions:
        raise FloorMissing
    return found.versions


def state(one: Version) -> dict[str, Any]:
    """A state of a page as it is shown."""
    return {
        "event": one.event, "at": written_at(one.at), "by": one.by, "why": printable(mask(one.why)),
        "unseen": one.unseen, "removed": not one.sha and not one.forgotten, "forgotten": one.forgotten,
    }  # fmt: skip


def difference(visit: Visit) -> Answer:
    """What one change made of a page; with `since`, what became of it from that state until now."""
    name = pages.checked(visit.path["page"])
    versions, event, since = _versions(visit.home.floor, name), visit.query.get("at", ""), visit.query.get("since", "")
    place = _place(versions, since or event or versions[-1].event)
    old, new = (versions[place], None) if since else (versions[place - 1] if place else None, versions[place])
    floor = visit.home.floor
    before = floor.said(name, old.event) if old else ""
    after = floor.said(name, new.event) if new else floor.read(name)
    values = page_values(visit.home, name) | {
        "title": f"What changed in {label(name)}", "rows": differences.rows(mask(before), mask(after)),
        "old": state(old) if old else None, "new": state(new) if new else None,
        "current": versions[-1].event,
    }  # fmt: skip
    return Shown("floor_diff.html", values)


def _place(versions: Sequence[Version], event: str) -> int:
    """Where the state of an event stands. Raises FloorMissing."""
    for place, one in enumerate(versions):
        if one.event == event:
            return place
    raise FloorMissing


def revert(visit: Visit) -> Answer:
    """Let a page say again what it said after an event."""
    name, floor = pages.checked(visit.path["page"]), visit.home.floor
    event = visit.form.get("event", "")
    if not event:
        raise UsageError("name the state of which to make the page")
    floor.revert(name, event)
    return Moved(address(name), f"It says again what it said. {NEXT_SESSION}")


def remove(visit: Visit) -> Answer:
    """Take a page away; its history stays."""
    name = pages.checked(visit.path["page"])
    visit.home.floor.remove(name)
    return Moved(address(name, "history"), f"{label(name)}: taken away. Any state below can be brought back.")


ROWS: tuple[View, ...] = (
    View("GET", f"{HERE}/{{page:path}}/edit", edit, "floor"),
    View("POST", f"{HERE}/{{page:path}}/edit", save, "floor", "write"),
    View("GET", f"{HERE}/{{page:path}}/history", history, "floor"),
    View("GET", f"{HERE}/{{page:path}}/diff", difference, "floor"),
    View("POST", f"{HERE}/{{page:path}}/revert", revert, "floor", "write"),
    View("POST", f"{HERE}/{{page:path}}/remove", remove, "floor", "write"),
    View("GET", f"{HERE}/{{page:path}}", page, "floor"),
)
