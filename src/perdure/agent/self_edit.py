"""Changes of an agent to itself: its system prompt, its settings, its skills. It proposes, the person decides.

A proposal is checked at once, by the same code that reads its page later, and says by which tools its session had read
text from outside. Nothing here is in reach of a tool but `propose_edit`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, NamedTuple

from perdure.access.fence import FENCE_NAME
from perdure.agent.definition import AgentDefinition, check_model, parse_definition
from perdure.agent.job_definition import check_job, parse_job, to_job_name
from perdure.agent.skills import check_text
from perdure.environ import find_agent_marker
from perdure.errors import DefinitionFault, EditRefused, JobFault, UsageError
from perdure.floor import layers, pages
from perdure.floor.pages import PageEdit
from perdure.floor.room import VARIABLES
from perdure.floor.skill_text import SkillRefused
from perdure.formats.perdure import AnyEntry, Message, Start
from perdure.session.blocks import FLOOR, BlockFile

if TYPE_CHECKING:
    from perdure.floor.state import EditProposal, PageVersion
    from perdure.home import Home
    from perdure.session.session import Session

TOOL = "propose_change"
_HARMLESS_KEYS = {"name", "model", "effort"}  # of agent.yaml; all others are limits
MAX_WAITING = 20  # proposals: what nobody reads protects nobody
# What these return is the agent's own, or the person's.
_OWN_TOOLS = {TOOL, "ask_user", "remember", "write_file", "edit_file", "image_generate"}


def check_page(home: Home, name: str, text: str) -> None:
    """Raise EditRefused for a text that the reader of its page would refuse. name: in full."""
    if not (name == pages.SETTINGS or pages.is_job(name)) or not text.strip():
        return
    pages.check_edit(PageEdit(name, text, "owner", text))  # its form first: a parser can be harmed
    try:
        if pages.is_job(name):
            check_job(home, parse_job(to_job_name(name), text))
        else:
            check_model(home, parse_definition(text))
    except (DefinitionFault, JobFault) as error:
        raise EditRefused(f"{name}: {error.detail}") from error


def propose_edit(
    home: Home, name: str, text: str, *, why: str = "", session: str = "", readings: Sequence[str] = ()
) -> EditProposal:
    """Propose an edit as an agent, after every check that its approval would make. Raises EditRefused, FloorMissing.

    session, readings: as in `Floor.propose`.
    """
    name = pages.resolve_name(name)
    old_text = home.floor.read(name)
    check_page(home, name, text)
    if problem := _find_reading_problem(home, name, text, old_text) or _find_repetition(home, name, text):
        raise EditRefused(f"{name}: {problem}")
    _refuse_suspect(home, name, text, old_text)
    home.floor.refuse_suspect(why, name)
    return home.floor.propose(name, text, why=why, session=session, readings=readings)


def _refuse_suspect(home: Home, name: str, text: str, old_text: str) -> None:
    """Raise EditRefused for a text that reads like an attack. Rules and skills are orders; these alone are no sign."""
    if name != pages.SYSTEM and not pages.is_skill(name) and not pages.is_job(name):
        if home.floor.is_refused(text, old_text):
            home.floor.refuse_suspect(text, name)
        return
    try:
        check_text(text, home.floor.find_injections)
    except SkillRefused as error:
        raise EditRefused(f"{name}: it reads like an attack on a model; say it in plain words") from error


def _find_reading_problem(home: Home, name: str, text: str, old_text: str) -> str:
    """Say what of a new text nothing would read; "" if all of it is read."""
    if name == pages.RECENT and not home.config.floor.overall:
        return "a job writes it, and no session reads it while floor.overall is false"
    if name != pages.SYSTEM:
        return ""
    known = dict.fromkeys(VARIABLES, "")
    old_unknown = layers.fill_variables(old_text, known)[1]
    unknown = [variable for variable in layers.fill_variables(text, known)[1] if variable not in old_unknown]
    return f"nothing fills in {{{{{unknown[0]}}}}} (known: {', '.join(VARIABLES)})" if unknown else ""


def _find_repetition(home: Home, name: str, text: str) -> str:
    """Say why the owner need not get one more proposal; "" if they may."""
    waiting = home.floor.list_proposals()
    for proposal in waiting:
        if proposal.name == name and proposal.text.rstrip() == text.rstrip():
            return f"{proposal.id} proposes this already, and waits for the owner"
    return f"{len(waiting)} proposals wait for the owner; that is enough" if len(waiting) >= MAX_WAITING else ""


def describe_powers(name: str, old_text: str, text: str) -> str:
    """Say which limits of an agent an edit of its settings changes, for the person who decides; "" if none.

    >>> describe_powers("agent.yaml", "", "mode: yolo")
    'It changes what the agent may do: mode.'
    """
    if pages.is_job(name):
        return _describe_job_powers(to_job_name(name), text)
    if name != pages.SETTINGS:
        return ""
    try:
        old = parse_definition(old_text) if old_text.strip() else AgentDefinition()
        new = parse_definition(text)
    except DefinitionFault:
        return ""  # it cannot be approved
    changed = [field.name for field in fields(AgentDefinition) if field.name not in _HARMLESS_KEYS]
    changed = [key for key in changed if getattr(old, key) != getattr(new, key)]
    return f"It changes what the agent may do: {', '.join(changed)}." if changed else ""


def _describe_job_powers(name: str, text: str) -> str:
    """Say when a proposed job runs, and what it may do with nobody there."""
    try:
        job = parse_job(name, text)
    except JobFault:
        return ""  # it cannot be approved
    kind = "a command" if job.command else f"an agent in mode {job.mode}"
    return f"It lets {kind} run by itself, {f'by the schedule {job.cron!r}' if job.cron else 'when it is triggered'}."


def approve_edit(home: Home, identifier: str, *, surface: str) -> PageVersion:
    """Make a proposed edit for the person who has read it. It counts from the next session on.

    surface: where they approved it. Raises FloorMissing, EditRefused.
    """
    proposal = home.floor.get_proposal(identifier)
    check_page(home, proposal.name, proposal.text)
    return home.floor.approve(proposal.id, surface=surface)


class EditDecision(NamedTuple):
    """What became of a proposed edit."""

    proposal: EditProposal
    words: str  # for the owner
    event: str = ""  # of the page's new version


def decide_edit(home: Home, identifier: str, *, is_approved: bool, surface: str) -> EditDecision:
    """Make or reject a proposed edit as its owner said on a surface, and return what was done.

    Raises UsageError in a process of an agent, FloorMissing, EditRefused.
    """
    refuse_agents()
    if is_approved:
        proposal = home.floor.get_proposal(identifier)
        version = approve_edit(home, proposal.id, surface=surface)
        return EditDecision(proposal, f"{proposal.name}: written. {pages.NEXT_SESSION}", version.event)
    proposal = home.floor.reject(identifier, surface=surface)
    return EditDecision(proposal, f"{proposal.id}: rejected. Nothing has changed.")


def refuse_agents() -> None:
    """Raise UsageError in a process that an agent began, as far as that can be seen."""
    if marker := find_agent_marker():
        raise UsageError(
            f"an agent runs this command ({marker} is set), and only the owner decides: use a terminal of your own, or "
            "the page (`perdure page`)"
        )


def find_readings(home: Home, session: Session) -> list[str]:
    """Return the tools by which a session has read text from outside; what was recalled beside a message counts."""
    texts = BlockFile(home.path, session.session, is_kept=session.log.is_kept).read()
    is_recalled = any(FENCE_NAME in text for name, text in texts.items() if name != FLOOR)
    return sorted({*list_reading_tools(session.log.find_path()), *(["recall"] if is_recalled else [])})


def list_reading_tools(entries: Sequence[AnyEntry]) -> set[str]:
    """Return the names of the tools whose outputs brought text from outside.

    @file: files were attached. queue_agent: the task of a sub-agent came from a model that may have read anything.
    """
    messages = [entry for entry in entries if isinstance(entry, Message)]
    names = {message.tool for message in messages if message.role == "tool" and not message.is_error} - _OWN_TOOLS
    names |= {"@file"} if any(message.files for message in messages) else set()
    return names | (
        {"queue_agent"} if any(isinstance(entry, Start) and entry.spawned_by for entry in entries) else set()
    )
