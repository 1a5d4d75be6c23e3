"""The pages of the floor: their names, who may write them, and what they may hold. Pure.

A text that is refused here reaches neither a file nor the journal. Edits by hand are not checked: they
are accepted as they are, unless they are no text at all.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from pathlib import PurePosixPath
from typing import Any

from perdure.access import redact
from perdure.errors import EditRefused, FloorMissing
from perdure.floor.skill_text import SkillRefused, parse_skill
from perdure.floor.state import OWNERS
from perdure.floor.yaml_text import load_yaml
from perdure.identity import to_path_component
from perdure.regex import lazy_re
from perdure.text import printable

SYSTEM, PROFILE, NOTES, CORE, RECENT, SETTINGS = (
    "system.md", "profile.md", "notes.md", "core.md", "recent.md", "agent.yaml",
)  # fmt: skip
DIARY, SKILLS, JOBS = "diary", "skills", "jobs"
MAX_SETTINGS_BYTES = 16_384  # of agent.yaml
MAX_BYTES = 262_144  # of a page: it goes into a context, where this could be a quarter of a million tokens
MIN_SYSTEM_CHARS = 100  # a shorter proposed system prompt would leave the agent without rules (row J27)
MAX_GROWTH = 3  # times the size of the old page: the limit for a proposed one (row J27)
NEXT_SESSION = "The change applies from the next session on."  # what a person reads after each edit
STANDARD_PAGES = (SYSTEM, PROFILE, NOTES, CORE, RECENT, SETTINGS)
_DIARY_NAME = lazy_re(rf"{DIARY}/\d{{4}}-\d\d-\d\d\.md\Z")
_SKILL_NAME = lazy_re(r"skills/[a-z0-9][a-z0-9-]{0,63}/SKILL\.md\Z")
_JOB_NAME = lazy_re(r"jobs/[a-z0-9][a-z0-9-]{0,39}\.yaml\Z")
_REQUIRED_SETTINGS = ("name", "tools", "max_turns")  # in an agent's settings (row J28)


@dataclass(frozen=True, slots=True)
class PageEdit:
    """A new text for a page, before it is checked and written."""

    name: str
    text: str
    by: str
    old: str = ""  # the page's present text
    is_proposal: bool = False
    why: str = ""  # the writer's reason


def resolve_name(name: str) -> str:
    """Return the full name of a page, also if it is given without its ending. Raises FloorMissing.

    >>> resolve_name("notes"), resolve_name("diary/2026-11-21")
    ('notes.md', 'diary/2026-11-21.md')
    """
    for candidate in (name, f"{name}.md", "agent.yaml" if name == "agent" else name):
        if is_page(candidate):
            return candidate
    raise FloorMissing(
        f"there is no page {printable(name)!r}: the pages are {', '.join(STANDARD_PAGES)} and diary/YYYY-MM-DD.md"
    )


def is_page(name: str) -> bool:
    """Return True if a file of this name is a page of the floor."""
    return name in STANDARD_PAGES or _is_diary_page(name) or bool(_SKILL_NAME.match(name) or _JOB_NAME.match(name))


def _is_diary_page(name: str) -> bool:
    """Return True for the diary page of a valid date."""
    if not _DIARY_NAME.match(name):
        return False
    with suppress(ValueError):
        return bool(date.fromisoformat(name[len(DIARY) + 1 : -len(".md")]))
    return False


def is_protected(name: str) -> bool:
    """Return True if an agent may only propose changes to this page."""
    return name in (SYSTEM, SETTINGS) or is_skill(name) or is_job(name)


def is_job(name: str) -> bool:
    """Return True for the page that defines a job."""
    return name.startswith(f"{JOBS}/")


def is_skill(name: str) -> bool:
    """Return True for the page of a skill."""
    return name.startswith(f"{SKILLS}/")


def to_agent_folder(agent: str, user: str, owner: str) -> PurePosixPath:
    """Return the folder of an agent's pages, relative to a home.

    owner: the owner of the home; other users get folders of their own.
    """
    folder_name = to_path_component(agent)
    return PurePosixPath("agents", folder_name if user == owner else f"{folder_name}~{to_path_component(user)}")


def is_folder_of(folder: str, user: str, owner: str) -> bool:
    """Return True if a folder of `agents/` belongs to this user.

    >>> is_folder_of("jarvis", "ada", "ada"), is_folder_of("jarvis~eve", "ada", "ada")
    (True, False)
    >>> is_folder_of("jarvis~eve", "eve", "ada")
    True
    """
    _, separator, user_part = folder.partition("~")
    return not separator if user == owner else bool(separator) and user_part == to_path_component(user)


def check_edit(edit: PageEdit) -> None:
    """Raise EditRefused, with the reason, for an edit that is not allowed."""
    for why in filter(
        None,
        (
            _find_permission_problem(edit),
            _find_text_problem(edit.text),
            _find_secret_problem(edit),
            _find_form_problem(edit),
        ),
    ):
        raise EditRefused(f"{edit.name}: {why}")


def _find_permission_problem(edit: PageEdit) -> str:
    if edit.by in OWNERS:
        return ""
    if edit.name == PROFILE:
        return "only the owner can write this page"
    if is_protected(edit.name) and not edit.is_proposal:
        return "it changes only with a proposal that the owner approves (`perdure floor propose`)"
    return ""


def _find_text_problem(text: str) -> str:
    """Say why a text cannot be a page; "" if it can."""
    if not text.strip():
        return "the new text is empty (`perdure floor remove` removes a page)"
    try:
        n_bytes = len(text.encode())
    except UnicodeEncodeError:
        return "the new text is not UTF-8"
    if "\0" in text:
        return "the new text contains NUL bytes"
    return f"the new text has {n_bytes} bytes; the maximum is {MAX_BYTES}" if n_bytes > MAX_BYTES else ""


def _find_secret_problem(edit: PageEdit) -> str:
    """Name the kinds of secrets that an edit adds.

    Secrets that the page already holds are no reason to refuse the rest.
    """
    new_secrets = _find_secrets(edit.text) - _find_secrets(edit.old)
    if new_secrets:
        return f"it contains text that looks like a secret ({_list_kinds(new_secrets)}); remove it"
    secrets_in_reason = _find_secrets(edit.why)
    return (
        f"the reason contains text that looks like a secret ({_list_kinds(secrets_in_reason)}); remove it"
        if secrets_in_reason
        else ""
    )


def _find_secrets(text: str) -> set[tuple[str, str]]:
    return {(secret.kind, text[secret.start : secret.end]) for secret in redact.find_secrets(text)}


def _list_kinds(secrets: set[tuple[str, str]]) -> str:
    return ", ".join(sorted({kind for kind, _ in secrets}))


def _find_form_problem(edit: PageEdit) -> str:
    if edit.name == SETTINGS:
        return _find_settings_problem(edit.text)
    if is_job(edit.name):
        return _find_job_problem(edit.text)
    if is_skill(edit.name) and (problem := _find_skill_problem(edit)):
        return problem
    if not edit.is_proposal:
        return ""
    if edit.name == SYSTEM and len(edit.text.strip()) < MIN_SYSTEM_CHARS:
        return f"a system prompt needs at least {MIN_SYSTEM_CHARS} characters"
    if edit.old and len(edit.text) > MAX_GROWTH * max(len(edit.old), MIN_SYSTEM_CHARS):
        return f"it is more than {MAX_GROWTH} times as long as the old text"
    return ""


def _find_settings_problem(text: str) -> str:
    """Say what is wrong with the settings of an agent; "" if nothing is."""
    if len(text.encode("utf-8", "surrogatepass")) > MAX_SETTINGS_BYTES:
        return f"settings have at most {MAX_SETTINGS_BYTES} bytes"
    try:
        return _find_missing_setting(load_yaml(text))
    except ValueError as error:
        return str(error)


def _find_job_problem(text: str) -> str:
    """Say why a text is no table of YAML, as a job needs; "" if it is one."""
    if len(text.encode("utf-8", "surrogatepass")) > MAX_SETTINGS_BYTES:
        return f"a job has at most {MAX_SETTINGS_BYTES} bytes"
    try:
        return "" if isinstance(load_yaml(text), dict) else "it is not a mapping of settings"
    except ValueError as error:
        return str(error)


def _find_skill_problem(edit: PageEdit) -> str:
    """Say why a text is no skill; "" if it is one."""
    try:
        parse_skill(edit.text, edit.name.split("/")[1])
    except SkillRefused as error:
        return str(error)
    return ""


def _find_missing_setting(settings: Any) -> str:
    """Say which setting of an agent is missing or wrong; "" if all are right."""
    if not isinstance(settings, dict):
        return "it is not a mapping of settings"
    missing = [name for name in _REQUIRED_SETTINGS if name not in settings]
    if missing:
        return f"it lacks {', '.join(missing)}"
    if not isinstance(settings["name"], str) or not settings["name"].strip():
        return "`name` must be a word"
    if not isinstance(settings["tools"], list) or not all(isinstance(tool, str) for tool in settings["tools"]):
        return "`tools` must be a list of names"
    if type(settings["max_turns"]) is not int or settings["max_turns"] < 1:
        return "`max_turns` must be a whole number from 1"
    return ""
