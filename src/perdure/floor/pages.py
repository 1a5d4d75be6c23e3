"""What a page of the floor is: its name, who may write it, and what it may hold. Pure.

Nothing that is refused here reaches a file or the journal. A hand edit is not asked: it is taken as it is, unless it is
no text at all.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from pathlib import PurePosixPath
from typing import Any

from perdure.access import redact
from perdure.errors import EditRefused, FloorMissing
from perdure.floor.events import OWNERS
from perdure.identity import component
from perdure.patterns import late
from perdure.text import printable

SYSTEM, PROFILE, NOTES, CORE, RECENT, SETTINGS = (
    "system.md", "profile.md", "notes.md", "core.md", "recent.md", "agent.yaml",
)  # fmt: skip
DIARY = "diary"
MAX_SETTINGS_BYTES = 16_384  # of agent.yaml
MAX_DEPTH = 50  # of what is nested in it: a parser that follows deeper nesting takes the whole process down
MAX_ALIASES = 10  # in it: merged into one another, a few more multiply to billions of entries
MAX_BYTES = 262_144  # of a page: it stands in a context, of which this is a quarter of a million tokens
MIN_SYSTEM_CHARS = 100  # a proposed system prompt that says less would leave the agent without its rules (row J27)
MAX_GROWTH = 3  # times the size of what it replaces, that a proposed page may have (row J27)
KNOWN = (SYSTEM, PROFILE, NOTES, CORE, RECENT, SETTINGS)
_DIARY = late(rf"{DIARY}/\d{{4}}-\d\d-\d\d\.md\Z")
_SKILL = late(r"skills/[a-z0-9][a-z0-9-]{0,63}/SKILL\.md\Z")
_NEEDED = ("name", "tools", "max_turns")  # in an agent's settings (row J28)


@dataclass(frozen=True, slots=True)
class Edit:
    """A new text for a page, before anything is done about it."""

    name: str
    text: str
    by: str
    old: str = ""  # what the page says now
    is_proposal: bool = False
    why: str = ""  # what its writer says of it


def checked(name: str) -> str:
    """The name of a page, also where it is written without its ending. Raises FloorMissing.

    >>> checked("notes"), checked("diary/2026-11-21")
    ('notes.md', 'diary/2026-11-21.md')
    """
    for candidate in (name, f"{name}.md", "agent.yaml" if name == "agent" else name):
        if is_page(candidate):
            return candidate
    raise FloorMissing(f"page {printable(name)!r} of the floor (there are {', '.join(KNOWN)} and diary/YYYY-MM-DD.md)")


def is_page(name: str) -> bool:
    """Whether a file of this name is a page of the floor."""
    return name in KNOWN or _is_day(name) or bool(_SKILL.match(name))


def _is_day(name: str) -> bool:
    """Whether this is the diary's page of a day that there is."""
    if not _DIARY.match(name):
        return False
    with suppress(ValueError):
        return bool(date.fromisoformat(name[len(DIARY) + 1 : -len(".md")]))
    return False


def is_protected(name: str) -> bool:
    """Whether an agent may only propose what this page is to say."""
    return name in (SYSTEM, SETTINGS) or name.startswith("skills/")


def folder_of(agent: str, user: str, owner: str) -> PurePosixPath:
    """Where the pages of an agent lie below a home. owner: whose home it is; others have a place of their own."""
    place = component(agent)
    return PurePosixPath("agents", place if user == owner else f"{place}~{component(user)}")


def is_of(folder: str, user: str, owner: str) -> bool:
    """Whether a folder of `agents/` is a user's.

    >>> is_of("jarvis", "ada", "ada"), is_of("jarvis~eve", "ada", "ada"), is_of("jarvis~eve", "eve", "ada")
    (True, False, True)
    """
    _, mark, whose = folder.partition("~")
    return not mark if user == owner else bool(mark) and whose == component(user)


def check(edit: Edit) -> None:
    """Raise EditRefused, saying why, for an edit that may not be made."""
    for why in filter(None, (_may_not(edit), _unfit(edit.text), _secret(edit), _form(edit))):
        raise EditRefused(f"{edit.name}: {why}")


def _may_not(edit: Edit) -> str:
    if edit.by in OWNERS:
        return ""
    if edit.name == PROFILE:
        return "it is the owner's, and only the owner writes it"
    if is_protected(edit.name) and not edit.is_proposal:
        return "it changes only by a proposal that its owner approves (`perdure floor propose`)"
    return ""


def _unfit(text: str) -> str:
    """Why this is no text that a page can have."""
    if not text.strip():
        return "the new text is empty (`perdure floor remove` takes a page away)"
    try:
        n_bytes = len(text.encode())
    except UnicodeEncodeError:
        return "the new text is not UTF-8"
    if "\0" in text:
        return "the new text is no text: it holds NUL bytes"
    return f"the new text has {n_bytes} bytes, and {MAX_BYTES} are the most" if n_bytes > MAX_BYTES else ""


def _secret(edit: Edit) -> str:
    """Which secrets an edit brings. What a page holds already is no reason to refuse what comes beside it."""
    brought = _secrets(edit.text) - _secrets(edit.old)
    if brought:
        return f"it holds what looks like a secret ({_kinds(brought)}); leave that out"
    said = _secrets(edit.why)
    return f"the reason given holds what looks like a secret ({_kinds(said)}); leave that out" if said else ""


def _secrets(text: str) -> set[tuple[str, str]]:
    return {(secret.kind, text[secret.start : secret.end]) for secret in redact.find(text)}


def _kinds(found: set[tuple[str, str]]) -> str:
    return ", ".join(sorted({kind for kind, _ in found}))


def _form(edit: Edit) -> str:
    if edit.name == SETTINGS:
        return _settings(edit.text)
    if not edit.is_proposal:
        return ""
    if edit.name == SYSTEM and len(edit.text.strip()) < MIN_SYSTEM_CHARS:
        return f"a system prompt has at least {MIN_SYSTEM_CHARS} characters"
    if edit.old and len(edit.text) > MAX_GROWTH * max(len(edit.old), MIN_SYSTEM_CHARS):
        return f"it is more than {MAX_GROWTH} times as long as what it would replace"
    return ""


def _settings(text: str) -> str:
    """What is wrong with the settings of an agent."""
    import yaml  # 20 ms, for those who edit one

    if len(text.encode("utf-8", "surrogatepass")) > MAX_SETTINGS_BYTES:
        return f"settings have at most {MAX_SETTINGS_BYTES} bytes"
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        if tangled := _tangled(yaml.parse(text, Loader=loader)):
            return tangled
        return _unset(yaml.load(text, Loader=loader))
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        return f"it is no YAML: {' '.join(str(error).split())}"


def _tangled(events: Iterable[Any]) -> str:
    """Why a text may not be loaded, from its events, of which no call nests in another; "" where it may."""
    depth = n_aliases = 0
    for event in events:
        kind = type(event).__name__
        depth += kind in ("SequenceStartEvent", "MappingStartEvent")
        depth -= kind in ("SequenceEndEvent", "MappingEndEvent")
        n_aliases += kind == "AliasEvent"
        if depth > MAX_DEPTH:
            return f"settings nest at most {MAX_DEPTH} deep"
        if n_aliases > MAX_ALIASES:
            return f"settings have at most {MAX_ALIASES} aliases"
    return ""


def _unset(found: Any) -> str:
    """What the settings of an agent lack."""
    if not isinstance(found, dict):
        return "it is no mapping of settings"
    missing = [name for name in _NEEDED if name not in found]
    if missing:
        return f"it lacks {', '.join(missing)}"
    if not isinstance(found["name"], str) or not found["name"].strip():
        return "`name` must be a word"
    if not isinstance(found["tools"], list) or not all(isinstance(tool, str) for tool in found["tools"]):
        return "`tools` must be a list of names"
    if type(found["max_turns"]) is not int or found["max_turns"] < 1:
        return "`max_turns` must be a whole number from 1"
    return ""
