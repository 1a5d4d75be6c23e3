"""Which calls of a model run, and which a person is asked about first.

A decision depends on the call, the mode, the rules of the agent's owner and the answers of the person. It depends on no
text that a model, a tool or recall has written, so no such text raises a permission. What is refused is refused in
every mode: no tool writes the home of Perdure.
"""

from __future__ import annotations

import fnmatch
import re
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from perdure.agent.commands import CallRisk, Risk, judge_line
from perdure.agent.folders import ProjectFolders
from perdure.agent.tools.files import FileChange, preview_change
from perdure.errors import ConfigFault, ToolError
from perdure.formats.perdure import CallEntry
from perdure.session.calls import CallPermission

Mode = Literal["plan", "ask", "edits", "yolo"]
Choice = Literal["once", "always", "deny"]
CHOICES: tuple[Choice, ...] = ("once", "always", "deny")
MODES: tuple[Mode, ...] = ("plan", "ask", "edits", "yolo")
MODE_MEANINGS = {
    "plan": "only what reads runs, and the answers are plans",
    "ask": "reading runs; what changes a file, or is not known, is asked about",
    "edits": "changes of the project's files run unasked; other commands are asked about",
    "yolo": "everything runs unasked; only the home of Perdure stays closed",
}
# The highest risk that goes ahead. In mode plan what is above it is refused, in the others the person is asked.
_LIMITS = {"plan": Risk.READS, "ask": Risk.UNDOABLE, "edits": Risk.EDITS, "yolo": Risk.HARD}
_READERS = {"read_file", "glob", "grep", "view_image", "recall", "ask_user", "activate_skill", "wait_for_agent"}
_WRITERS = {"write_file", "edit_file"}
_UNDOABLE = {
    "remember": "keeps a memory", "propose_change": "proposes a change",
    "queue_agent": "starts a sub-agent",  # it may do no more than this session without a person; its check is apart
}  # fmt: skip
_RULE = re.compile(r"([A-Za-z_][\w-]*\*?)(?:\((.*)\))?", re.DOTALL)
_MOVE = re.compile(r"(?:cd|pushd|popd)\b")  # the same command in another folder runs something else
MCP_SEPARATOR = "__"  # between the name of a server and that of its tool
NOBODY = "nobody can be asked here. Go on without it, or say what you would have done"
PLANNING = "in plan mode only what reads may run. Put it into the plan: the person carries it out, or ends plan mode"
DENIED = "Do not try to reach the same in another way: go on without it, or ask."


class PermissionRule(NamedTuple):
    """A tool, or those of its calls that a pattern matches: `shell(git commit *)`, `write_file(docs/*)`."""

    tool: str  # with a `*` at its end every tool that begins so: `files__*`
    pattern: str  # "" for every call; `*` stands for any characters; `cd src && make` for a command in another folder

    def matches(self, tool: str, subject: str, place: str = "", *, is_anywhere: bool = True) -> bool:
        """Return True if the rule is about a call. subject: a simple command, or the path of a file. place: how its
        line goes to another folder. is_anywhere: a rule that names no folder holds in all of them.
        """
        if not fnmatch.fnmatchcase(tool, self.tool) or not self.pattern:
            return fnmatch.fnmatchcase(tool, self.tool)
        move, _, pattern = self.pattern.rpartition(" && ")
        is_there = fnmatch.fnmatchcase(place, move) or (is_anywhere and not move)
        return is_there and (fnmatch.fnmatchcase(subject, pattern) or pattern == f"{subject} *")


def parse_rule(text: str) -> PermissionRule:
    """Return the rule of a text. Raises ConfigFault.

    >>> parse_rule("shell(git commit *)")
    PermissionRule(tool='shell', pattern='git commit *')
    """
    match = _RULE.fullmatch(text.strip())
    if not match:
        raise ConfigFault(f"the rule {text!r} is not of the form TOOL or TOOL(PATTERN)")
    return PermissionRule(match[1], match[2] or "")


@dataclass(frozen=True)
class PermissionRules:
    """The rules of an agent's owner. They hold in every mode: deny before ask before allow."""

    allow: tuple[PermissionRule, ...] = ()
    ask: tuple[PermissionRule, ...] = ()
    deny: tuple[PermissionRule, ...] = ()


@dataclass(frozen=True)
class PermissionRequest:
    """A call that a person is asked about."""

    call: CallEntry
    risks: tuple[CallRisk, ...]  # its parts that ask, the worst first
    change: FileChange | None = None  # what it would change; None if it is not about a file, or cannot work

    @property
    def reason(self) -> str:
        """Why the person is asked."""
        return "; ".join(dict.fromkeys(risk.reason for risk in self.risks))

    @property
    def always_scope(self) -> str:
        """What the answer `always` allows until the session is closed."""
        if all(_is_any_file(self.call.name, risk) for risk in self.risks):
            return f"{self.call.name} for files of the project"
        return "this command" if self.call.name == "shell" else f"{self.call.name} with {self.risks[0].command}"


@dataclass(frozen=True)
class PermissionAnswer:
    """The answer of a person."""

    choice: Choice  # always: in this session, the same command or the same tool
    words: str = ""  # what the model shall read with a denial


OnAsk = Callable[[PermissionRequest], PermissionAnswer | None]  # None: nobody can be asked


class PermissionGate:
    """Decides about the calls of one session."""

    def __init__(
        self, folders: ProjectFolders, *, mode: Mode = "ask", rules: PermissionRules = PermissionRules(),
        on_ask: OnAsk | None = None, readers: Collection[str] = (),
    ) -> None:  # fmt: skip
        """on_ask: asks the person; without it, what needs an answer is denied. readers: tools of MCP servers that only
        read, because the owner says so. `mode` may be set at any time.
        """
        self.mode, self._readers = mode, readers
        self._folders, self._rules, self._on_ask = folders, rules, on_ask
        self._remembered: set[tuple[str, str, str]] = set()  # (tool, subject, place); ("…", "", ""): any file
        self._lock = threading.Lock()  # one question at a time

    def decide(self, call: CallEntry) -> CallPermission:
        """Return whether a call runs, and why. It asks the person where that is needed."""
        asking: list[CallRisk] = []
        words = ""
        risks = list_risks(call, self._folders, self._readers)
        place = self._find_place(risks)
        for risk in risks:
            verdict, why = self._decide_part(call.name, risk, place)
            if verdict == "deny":
                return CallPermission(False, f"refused: {why}. {DENIED}")
            if verdict == "ask":
                asking.append(risk)
            words = words or why
        if not asking:
            return CallPermission(True, words)
        change = preview_change(self._folders, call.name, call.input) if self._on_ask else None
        request = PermissionRequest(call, tuple(sorted(asking, key=lambda risk: -risk.risk)), change)
        with self._lock:
            answer = self._on_ask(request) if self._on_ask else None
            if answer is not None:
                return self._apply(answer, request, place)
        return CallPermission(False, f"not allowed: {request.reason}, so a person must allow it, and {NOBODY}.")

    def _find_place(self, risks: Sequence[CallRisk]) -> str:
        """Return how a line goes to another folder: "" if it stays in the folder of the session."""
        moves = [risk.command for risk in risks if _MOVE.match(risk.command)]
        return " && ".join(move for move in moves if not self._stays(move))

    def _stays(self, move: str) -> bool:
        try:
            return self._folders.resolve(_MOVE.sub("", move).strip()) == self._folders.start
        except ToolError:
            return False

    def _decide_part(self, tool: str, risk: CallRisk, place: str) -> tuple[Literal["allow", "ask", "deny"], str]:
        """Return the verdict on one part of a call, and why. place: how its line goes to another folder, or ""."""
        if risk.risk == Risk.REFUSED:
            return "deny", risk.reason
        if rule := _find_rule(self._rules.deny, tool, risk.command, place):
            return "deny", f"the owner's rule {rule}"
        if self.mode == "plan" and risk.risk > _LIMITS["plan"]:
            return "deny", f"{risk.reason}, and {PLANNING}"
        if _find_rule(self._rules.ask, tool, risk.command, place):
            return ("allow", "allowed for the session") if self._is_remembered(tool, risk, place) else ("ask", "")
        if rule := _find_rule(
            self._rules.allow, tool, risk.command, place, is_anywhere=bool(_MOVE.match(risk.command))
        ):
            return "allow", f"rule {rule}"
        if risk.risk <= _LIMITS[self.mode]:
            return "allow", "" if risk.risk == Risk.READS else f"mode {self.mode}"
        return ("allow", "allowed for the session") if self._is_remembered(tool, risk, place) else ("ask", "")

    def _is_remembered(self, tool: str, risk: CallRisk, place: str) -> bool:
        is_any_file = risk.risk == Risk.EDITS and (tool, "", "") in self._remembered
        return is_any_file or (tool, risk.command, place) in self._remembered

    def _apply(self, answer: PermissionAnswer, request: PermissionRequest, place: str) -> CallPermission:
        if answer.choice == "deny":
            reason = f", and says: {answer.words}" if answer.words else ""
            return CallPermission(False, f"denied: the person does not allow this call{reason}. {DENIED}")
        if answer.choice == "always":
            tool = request.call.name
            for risk in request.risks:
                key = (tool, "", "") if _is_any_file(tool, risk) else (tool, risk.command, place)
                self._remembered.add(key)
            return CallPermission(True, "allowed for the session")
        return CallPermission(True, "allowed once")


def _is_any_file(tool: str, risk: CallRisk) -> bool:
    """Return True if an answer about this part of a call holds for all files of the project."""
    return tool in _WRITERS and risk.risk == Risk.EDITS


def _find_rule(
    rules: Sequence[PermissionRule], tool: str, subject: str, place: str, *, is_anywhere: bool = True
) -> str:  # fmt: skip
    """Return the first rule about a call as it is written, or ""; the rest as in PermissionRule.matches."""
    for rule in rules:
        if rule.matches(tool, subject, place, is_anywhere=is_anywhere):
            return f"{rule.tool}({rule.pattern})" if rule.pattern else rule.tool
    return ""


def list_risks(call: CallEntry, folders: ProjectFolders, readers: Collection[str] = ()) -> list[CallRisk]:
    """Return the risk of each part of a call; a shell line has a part for each of its commands. readers: as in
    PermissionGate.
    """
    if call.name == "shell":
        line = str(call.input.get("command", ""))
        return judge_line(line, folders) or [CallRisk(Risk.READS, "", line)]
    if call.name in _READERS:
        return [CallRisk(Risk.READS, "", str(call.input.get("path", "")))]
    if call.name in _WRITERS:
        return [_judge_file(str(call.input.get("path", "")), folders)]
    if call.name == "propose_change" and not is_proposing(call.input):
        return [CallRisk(Risk.READS, "")]
    if call.name in _UNDOABLE:
        return [CallRisk(Risk.UNDOABLE, _UNDOABLE[call.name])]
    if call.name == "image_generate":
        return [CallRisk(Risk.UNKNOWN, "it sends a text to a provider and may cost money")]
    if call.name in readers:
        return [CallRisk(Risk.READS, "")]
    if MCP_SEPARATOR in call.name:
        server, _, tool = call.name.partition(MCP_SEPARATOR)
        return [CallRisk(Risk.UNKNOWN, f"it is not known what {tool} of the MCP server {server} does")]
    return [CallRisk(Risk.UNKNOWN, f"it is not known what {call.name} does")]


def is_proposing(given: Mapping[str, Any]) -> bool:
    """Return True if a call of propose_change proposes something, False if it only reads a page."""
    return not {"text", "old", "new"}.isdisjoint(given)


def _judge_file(path: str, folders: ProjectFolders) -> CallRisk:
    """Return the risk of writing a file."""
    try:
        resolved = folders.check(path, is_write=True)
    except ToolError as error:
        return CallRisk(Risk.REFUSED, str(error), path)
    shown = folders.show(resolved)
    if folders.find_zone(resolved) == "private":
        return CallRisk(Risk.HARD, f"{shown} is git's own, and what stands there may run unseen", shown)
    return CallRisk(Risk.EDITS, f"it changes {shown}", shown)
