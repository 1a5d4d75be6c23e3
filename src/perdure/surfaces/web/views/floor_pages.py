"""Pages of the floor: read, edit, history with the diff of each change, revert to an old state, remove.

What is shown is masked. An edit counts only if the page still has the text that its writer read;
otherwise the typed text is kept and shown beside what changed in between. Every change is the owner's,
and the journal records all of them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import quote

from perdure.access.redact import mask
from perdure.access.scan import Finding
from perdure.agent.self_edit import check_page
from perdure.errors import EditRefused, FloorMissing, IndexFault, UsageError
from perdure.floor import layers, notes, pages
from perdure.floor.floor import Floor, PageChange
from perdure.floor.state import MAX_VERSIONS, PageVersion, hash_text
from perdure.home import Home
from perdure.surfaces import text_diff
from perdure.surfaces.units import from_hybrid_time
from perdure.surfaces.web import visits
from perdure.surfaces.web.visits import HtmlPage, Redirect, View, ViewResult, Visit
from perdure.text import printable, tokens

T = TypeVar("T")

FLOOR_URL = "/floor"
_PAGE_ROWS = 50  # states or cards on one page
_MAX_DIGITS = 9  # a longer number is not an offset
_LABELS = {
    pages.SYSTEM: ("System prompt", "the role of the agent and its rules"),
    pages.PROFILE: ("Profile", "who you are, in your words; agents cannot write here"),
    pages.CORE: ("Core", "facts for every session"),
    pages.NOTES: ("Notes", "one note per line, newest last"),
    pages.RECENT: ("Recent, all projects", "a summary of recent work; sessions get it with the setting floor.overall"),
    pages.SETTINGS: ("Settings of the agent", "its name, its tools, its maximum number of turns"),
}


def to_label(name: str) -> str:
    """Return the label of a page."""
    if name in _LABELS:
        return _LABELS[name][0]
    folder, _, remainder = name.partition("/")
    return (
        f"Diary of {remainder.removesuffix('.md')}" if folder == pages.DIARY else f"Skill {remainder.partition('/')[0]}"
    )


def to_url(name: str, act: str = "") -> str:
    """Return the address of a page, or of an action on it.

    >>> to_url("notes.md"), to_url("diary/2026-11-21.md", "history")
    ('/floor/notes', '/floor/diary/2026-11-21/history')
    """
    return f"{FLOOR_URL}/{quote(name.removesuffix('.md'))}{f'/{act}' if act else ''}"


def normalise_newlines(text: str) -> str:
    """Return the text of a textarea with the line ends that the floor uses."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def list_projects(home: Home) -> list[str]:
    """Return the paths of the projects for which the floor may have content; none without an index."""
    with contextlib.suppress(IndexFault):
        return [project for project in home.runs.projects(is_own=True) if project]
    return []


def resolve_project(home: Home, value: str) -> str:
    """Return the path of the project that an address or a form means."""
    return visits.resolve_key(value, lambda: list_projects(home))


def collect_page_values(home: Home, name: str) -> dict[str, Any]:
    """Return the values that every view of a page needs."""
    return {
        "title": to_label(name),
        "name": name,
        "about": _LABELS.get(name, ("", ""))[1],
        "here_page": to_url(name),
        "n_proposals": len(home.floor.list_proposals()),
    }


# read -----------------------------------------------------------------------------------------------------------


def show_page(visit: Visit) -> ViewResult:
    """Show a page, who changed it last, and whether a model reads it."""
    name = pages.resolve_name(visit.path_params["page"])
    if name.startswith(f"{pages.DIARY}/"):
        return Redirect(f"/diary?day={name[len(pages.DIARY) + 1 : -len('.md')]}")
    return make_page(visit, name)


def make_page(visit: Visit, name: str, *, refused: str = "", draft: str = "") -> HtmlPage:
    """Return a page to show. refused: why a note was refused; draft: its text."""
    floor = visit.home.floor
    text = floor.read(name)
    if not text and name not in pages.STANDARD_PAGES and name not in floor.load_state().pages:
        raise FloorMissing
    lines = _list_note_rows(floor, text) if name == pages.NOTES else ()
    values = collect_page_values(visit.home, name) | {
        "text": printable(mask(text)),
        "n_tokens": tokens(text),
        "last": _find_last_change(floor, name),
        "suspects": () if any(line.is_held for line in lines) else find_suspects(floor, text),
        "lines": lines,
        "is_markdown": name.endswith(".md"),
        "alerts": [printable(alert) for alert in floor.alerts],
        "refused": refused,
        "kept": draft,
        "projects": list_projects(visit.home) if name == pages.NOTES else (),
    }
    return HtmlPage("floor_page.html", values, 400 if refused else 200)


def _find_last_change(floor: Floor, name: str) -> dict[str, Any] | None:
    """Return the last change of a page; None if nobody wrote it."""
    page_state = floor.load_state().pages.get(name)
    return to_state_values(page_state.current) if page_state else None


def find_suspects(floor: Floor, text: str) -> list[Finding]:
    """Return why a text would be left out of every context; the words are masked."""
    findings = floor.find_injections(layers.clean_page_text(text)) if text else ()
    return [Finding(finding.rule, printable(mask(finding.excerpt)), finding.score) for finding in findings[:3]]


@dataclass(frozen=True, slots=True)
class NoteRow:
    """A line of the notes, as a person sees it."""

    words: str
    is_heading: bool
    memory: str  # id of the memory that it repeats
    project: str
    name: str  # hash of the raw line; removing a line names it by this
    is_held: bool  # held back from models, because it reads like an instruction


def _list_note_rows(floor: Floor, text: str) -> list[NoteRow]:
    """Return the lines of the notes that contain something, in order."""
    parsed_notes = [notes.parse_line(raw) for raw in text.splitlines()]
    return [_to_note_row(floor, note) for note in parsed_notes if note.words and note.words != notes.HEADING]


def _to_note_row(floor: Floor, note: notes.NoteLine) -> NoteRow:
    is_held = bool(floor.find_injections(layers.clean_page_text(note.raw)))
    words, project = printable(mask(note.words)), printable(note.project)
    return NoteRow(words, not note.is_note, note.memory, project, hash_text(note.raw), is_held)


# edit -----------------------------------------------------------------------------------------------------------


def edit_page(visit: Visit) -> ViewResult:
    """Show the form to edit a page, with the hash of the text that its writer reads."""
    name = pages.resolve_name(visit.path_params["page"])
    text = visit.home.floor.read(name)
    return _make_form(visit, name, {"typed": mask(text), "base": _hash_text(text)})


def save_page(visit: Visit) -> ViewResult:
    """Save a new text of a page if it still has the text that the writer read."""
    name, form = pages.resolve_name(visit.path_params["page"]), visit.form
    new_text, base, why = normalise_newlines(form.get("text", "")), form.get("base", ""), form.get("why", "").strip()
    old_texts: list[str] = []

    def change(old: str) -> PageChange | None:
        old_texts.append(old)
        return PageChange(new_text, "owner", why) if base == _hash_text(old) else None

    floor = visit.home.floor
    form_values = {"typed": new_text, "why": why}
    try:
        check_page(visit.home, name, new_text)
        result = floor.rework(name, change)
    except EditRefused as error:
        return _make_form(visit, name, form_values | {"base": base, "refused": error.detail})
    if result is None:
        rows = text_diff.make_diff_lines(mask(old_texts[0]), mask(new_text))
        return _make_form(visit, name, form_values | {"base": _hash_text(old_texts[0]), "rows": rows, "is_late": True})
    is_new = floor.read(name) != old_texts[0]
    return Redirect(
        to_url(name), describe_write(floor, name) if is_new else "The page already has this text: nothing was changed."
    )


def _hash_text(text: str) -> str:
    """Return the hash of a text that a writer read; "" if there was none."""
    return hash_text(text) if text else ""


def describe_write(floor: Floor, name: str) -> str:
    """Return the notice for a page that was written."""
    findings = find_suspects(floor, floor.read(name))
    if findings:
        return (
            f"Written. It reads like an instruction to a model ({findings[0].rule}): "
            "no model gets it until you allow it."
        )
    return f"Written. {pages.NEXT_SESSION}"


def _make_form(visit: Visit, name: str, extra_values: dict[str, Any]) -> HtmlPage:
    """Return the edit form: with the typed text and the reason why it was refused."""
    text = visit.home.floor.read(name)
    values: dict[str, Any] = collect_page_values(visit.home, name) | {
        "title": f"Edit {to_label(name)}",
        "is_masked": mask(text) != text,
        "why": "",
        "refused": "",
        "rows": (),
        "is_late": False,
    }
    values |= extra_values
    return HtmlPage("floor_edit.html", values, 409 if values["is_late"] else 400 if values["refused"] else 200)


# history --------------------------------------------------------------------------------------------------------


def show_history(visit: Visit) -> ViewResult:
    """Show every stored state of a page, newest first: when, by whom, why."""
    name = pages.resolve_name(visit.path_params["page"])
    versions = _read_versions(visit.home.floor, name)
    page_versions, next_start = take_page(versions[::-1], visit.query.get("from", ""))
    values = collect_page_values(visit.home, name) | {
        "title": f"History of {to_label(name)}",
        "versions": [to_state_values(version) for version in page_versions],
        "current": versions[-1].event,
        "more": f"{to_url(name, 'history')}?from={next_start}" if next_start else "",
        "is_whole": len(versions) < MAX_VERSIONS,
    }
    return HtmlPage("floor_history.html", values)


def take_page(items: Sequence[T], start: str) -> tuple[Sequence[T], int]:
    """Return (the part of a list that begins at start, the start of the next part; 0 after the last part).

    >>> take_page("abc", "nonsense"), take_page(range(60), "50")
    (('abc', 0), (range(50, 60), 0))
    """
    low = int(start) if start.isascii() and start.isdecimal() and len(start) < _MAX_DIGITS else 0
    high = low + _PAGE_ROWS
    return items[low:high], high if high < len(items) else 0


def _read_versions(floor: Floor, name: str) -> Sequence[PageVersion]:
    """Return the stored states of a page, oldest first. Raises FloorMissing."""
    floor.read(name)
    page_state = floor.load_state().pages.get(name)
    if page_state is None or not page_state.versions:
        raise FloorMissing
    return page_state.versions


def to_state_values(version: PageVersion) -> dict[str, Any]:
    """Return the values of a page's state."""
    return {
        "event": version.event,
        "at": from_hybrid_time(version.at),
        "by": version.by,
        "why": printable(mask(version.why)),
        "unseen": version.unseen,
        "removed": not version.sha and not version.forgotten,
        "forgotten": version.forgotten,
    }


def show_difference(visit: Visit) -> ViewResult:
    """Show the diff of one change of a page; with `since`, the diff from that state until now."""
    name = pages.resolve_name(visit.path_params["page"])
    versions, event, since = (
        _read_versions(visit.home.floor, name),
        visit.query.get("at", ""),
        visit.query.get("since", ""),
    )
    index = _find_version(versions, since or event or versions[-1].event)
    old, new = (versions[index], None) if since else (versions[index - 1] if index else None, versions[index])
    floor = visit.home.floor
    before = floor.read_version(name, old.event) if old else ""
    after = floor.read_version(name, new.event) if new else floor.read(name)
    values = collect_page_values(visit.home, name) | {
        "title": f"Changes of {to_label(name)}",
        "rows": text_diff.make_diff_lines(mask(before), mask(after)),
        "old": to_state_values(old) if old else None,
        "new": to_state_values(new) if new else None,
        "current": versions[-1].event,
    }
    return HtmlPage("floor_diff.html", values)


def _find_version(versions: Sequence[PageVersion], event: str) -> int:
    """Return the index of the state of an event. Raises FloorMissing."""
    for index, version in enumerate(versions):
        if version.event == event:
            return index
    raise FloorMissing


def revert_page(visit: Visit) -> ViewResult:
    """Revert a page to its text after an event."""
    name, floor = pages.resolve_name(visit.path_params["page"]), visit.home.floor
    event = visit.form.get("event", "")
    if not event:
        raise UsageError("give the state to restore")
    floor.revert(name, event)
    return Redirect(to_url(name), f"The earlier text is restored. {pages.NEXT_SESSION}")


def remove_page(visit: Visit) -> ViewResult:
    """Remove a page; its history stays."""
    name = pages.resolve_name(visit.path_params["page"])
    visit.home.floor.remove(name)
    return Redirect(to_url(name, "history"), f"{to_label(name)}: removed. You can restore any state below.")


VIEWS: tuple[View, ...] = (
    View("GET", f"{FLOOR_URL}/{{page:path}}/edit", edit_page, "floor"),
    View("POST", f"{FLOOR_URL}/{{page:path}}/edit", save_page, "floor", "write"),
    View("GET", f"{FLOOR_URL}/{{page:path}}/history", show_history, "floor"),
    View("GET", f"{FLOOR_URL}/{{page:path}}/diff", show_difference, "floor"),
    View("POST", f"{FLOOR_URL}/{{page:path}}/revert", revert_page, "floor", "write"),
    View("POST", f"{FLOOR_URL}/{{page:path}}/remove", remove_page, "floor", "write"),
    View("GET", f"{FLOOR_URL}/{{page:path}}", show_page, "floor"),
)
