"""Propose a change of the agent's own pages to the person; the only tool that has to do with them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from perdure.access.redact import mask
from perdure.agent.permission import is_proposing
from perdure.agent.self_edit import TOOL, find_readings, propose_edit
from perdure.agent.tools.files import make_diff
from perdure.agent.tools.find_text import find_spans
from perdure.agent.tools.output import take_first
from perdure.errors import ToolError
from perdure.floor import pages
from perdure.models.chat import ToolSpec
from perdure.session.calls import Tool, ToolOutput

if TYPE_CHECKING:
    from perdure.home import Home
    from perdure.session.session import Session


def build_tool(home: Home, get_session: Callable[[], Session]) -> Tool:
    """Return propose_change. get_session: the session in which it is called."""
    spec = ToolSpec(
        TOOL,
        "Propose a change of one of your own pages to the person: system.md (your rules), agent.yaml (your settings), "
        "core.md, notes.md, skills/<name>/SKILL.md, jobs/<name>.yaml. Give the whole `text`, or one piece of it as "
        "`old` and `new`; with `page` alone it returns the page. Nothing changes until the person approves, and then "
        "from the next session.",
        {
            "type": "object",
            "properties": {
                "page": {"type": "string", "minLength": 1},
                "text": {"type": "string"},
                "old": {"type": "string", "minLength": 1, "description": "stands in the page exactly once"},
                "new": {"type": "string", "description": "what stands there afterwards"},
                "why": {"type": "string", "description": "the reason, for the person"},
            },
            "required": ["page"],
            "additionalProperties": False,
        },
    )
    return Tool(spec, lambda given, _: propose_change(home, given, get_session()), is_alone=is_proposing)


def propose_change(home: Home, given: Mapping[str, Any], session: Session) -> ToolOutput:
    """Propose a change, and return what it would change; or return a page. Raises EditRefused, ToolError."""
    name = pages.resolve_name(given["page"])
    with home.clone_for_thread() as thread_home:
        old_text = thread_home.floor.read(name)
        if not is_proposing(given):
            return _show_page(name, old_text)
        text = _make_text(name, old_text, given)
        if not given.get("why", "").strip():
            raise ToolError("give `why`: the person decides by it")
        readings = find_readings(home, session)
        proposal = propose_edit(
            thread_home, name, text, why=given["why"].strip(), session=session.session, readings=readings
        )
    diff = make_diff(mask(old_text), mask(proposal.text), name)
    return ToolOutput(
        f"Proposed as {proposal.id}. Nothing has changed: the person decides, and an approved change counts from the "
        f"next session.\n{diff}"
    )


def _show_page(name: str, text: str) -> ToolOutput:
    if not text:
        return ToolOutput(f"[{name} is not written yet.]")
    cut = take_first(mask(text).splitlines())
    return ToolOutput("\n".join([*cut.lines, *(["[The page goes on.]"] if cut.is_cut else [])]))


def _make_text(name: str, old_text: str, given: Mapping[str, Any]) -> str:
    """Return the whole new text of a page. Raises ToolError."""
    if "text" in given:
        if "old" in given or "new" in given:
            raise ToolError("give `text`, or `old` and `new`")
        return str(given["text"])
    if "old" not in given or "new" not in given:
        raise ToolError("give `old` and `new` together, or the whole `text`")
    places = find_spans(old_text, given["old"]).places
    if len(places) != 1:
        raise ToolError(f"`old` stands {len(places)} times in {name}; it must stand there once")
    start, end = places[0]
    return old_text[:start] + str(given["new"]) + old_text[end:]
