"""The turns of a workflow in the home's archive: the truth, from which every turn can be exported.

Each writer has a session of its own (runtime `workflow`), so that no two writers share an offset; the workflow is the
conversation that groups them. A turn is two lines in the form of a provider's messages: what the agent thought and
called, and the result. Search and recall read them as those of any other client.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from perdure import log
from perdure.archive import ingest
from perdure.capture import session_file
from perdure.errors import PerdureError, UsageError
from perdure.identity import find_workflow_agent, make_workflow_tags
from perdure.index.encoding import to_ms
from perdure.index.workflow_rows import StoredTurn
from perdure.session.log import make_id
from perdure.types import WORKFLOW_RUNTIME, Origin
from perdure.workflow.tier_queue import MAX_WAITING
from perdure.workflow.turns import WorkflowTurn, clean_text, make_turn, to_name_part

if TYPE_CHECKING:
    from perdure.home import Home

N_TOGETHER = 50  # turns that are archived as one run: a run costs some files, and about 40 ms


class TurnArchive:
    """What one writer puts into the archive of a home, and all turns of its workflow there."""

    def __init__(self, home: Home, workflow_id: str, *, step_id: str, agent_id: str, user: str = "") -> None:
        self._home = home
        names = [to_name_part(part) for part in (user, workflow_id, step_id, agent_id) if part]
        self._workflow = ":".join(names[:-2])
        self._session, self._writer = make_id("s"), (clean_text(step_id), clean_text(agent_id))
        self._tags = make_workflow_tags(workflow=workflow_id, step=step_id, agent=agent_id, user=user)
        self._origin = ingest.clean_origin(Origin(WORKFLOW_RUNTIME, ":".join([*names, self._session]), self._workflow))
        self._file: session_file.SessionFile | None = None  # until the first turn
        self._n_bytes = 0  # of this writer's session
        self._n_open = 0  # turns that are durable, and not yet archived

    def append(self, turn: WorkflowTurn, *, is_behind: bool = False) -> None:
        """Write a turn down, durably; after some turns the home archives them.

        is_behind: some tier lacks many turns. Then they stay in one file, so that `read_newest` gives them all.
        Raises UsageError while the owner's settings forbid it.
        """
        if self._home.captures.current_pause():
            raise UsageError("capture is paused, so the turn is not archived; `perdure resume` ends the pause")
        if refusal := self._home.captures.refusal(self._origin):
            raise UsageError(f"{refusal}; the turn is not archived")
        file = self._file or self._begin_file()
        data = b"".join(msgspec.json.encode(line) + b"\n" for line in to_messages(turn, self._workflow))
        file.append(data)
        self._n_bytes += len(data)
        self._n_open += 1
        if self._n_open >= (MAX_WAITING if is_behind else N_TOGETHER):
            try:
                self.archive()
            except PerdureError as error:  # the turn is durable, and the next one tries again
                log.append_entry(self._home.path, "workflow-waits", session=self._session, code=error.code)

    def archive(self) -> None:
        """Move this writer's turns into the archive, where search finds them."""
        if self._file is not None and self._n_open:
            self._home.captures.archive_session(self._file)
            self._begin_file()
            self._n_open = 0

    def export(self) -> list[WorkflowTurn]:
        """Return every turn of the workflow, each once, by time, also those that other writers have just written."""
        return self._read_turns()

    def read_newest(self) -> list[WorkflowTurn]:
        """Return the newest turns of this step and agent, whichever process wrote them: at least a hundred, and those
        that a tier had not got.
        """
        turns = self._read_turns(session_start=self._origin.session.removesuffix(self._session), k=2 * N_TOGETHER)
        return [turn for turn in turns if (turn.step, turn.agent) == self._writer]

    def _read_turns(self, *, session_start: str = "", k: int | None = None) -> list[WorkflowTurn]:
        """Return turns by time. session_start: how their sessions begin; k: of two runs at least, and so many."""
        user = self._home.user
        open_lines = [
            line
            for session in session_file.list_sessions(self._home.path)
            for _, line in session_file.read_unarchived(self._home.path, session, user)
        ]  # before the archive: what moves there meanwhile is seen there
        ledger, conversation = self._home.archive.ledger, self._origin.conversation
        runs = ledger.list_conversation_runs(user, WORKFLOW_RUNTIME, conversation, session_start=session_start)
        turns: dict[str, WorkflowTurn] = {}
        for n, run in enumerate(reversed(runs)):
            if k is not None and n >= 2 and len(turns) >= k:
                break
            lines = self._home.archive.read(run).split(b"\n")
            turns |= {turn.key: turn for turn in reversed(from_messages(lines, self._workflow))}  # the first one counts
        turns |= {turn.key: turn for turn in from_messages(open_lines, self._workflow) if turn.key not in turns}
        return [turn for _, turn in sorted(turns.items(), key=lambda item: (item[1].timestamp, item[0]))]

    def close(self) -> None:
        """Archive what there is, and delete the file; what cannot be archived now stays for the home's next process."""
        if self._file is not None:
            self.archive()
            self._file.delete()
            self._file = None

    def _begin_file(self) -> session_file.SessionFile:
        if self._file is None:
            self._file = session_file.SessionFile(self._home.path, self._session)
        config = self._home.config
        self._file.begin(
            {
                "origin": msgspec.to_builtins(self._origin),
                "from_offset": self._n_bytes,
                "user": self._home.user,
                "machine": config.machine,
                "agent": config.agent,
                "tags": self._tags,
            }
        )
        return self._file


def to_messages(turn: WorkflowTurn, workflow: str) -> list[dict[str, Any]]:
    """Return a turn as two messages of a provider, from which `from_messages` makes it again."""
    call = {"id": turn.turn_id, "type": "function", "function": {"name": turn.action, "arguments": "{}"}}
    return [
        {
            "role": "assistant",
            "id": turn.key,
            "timestamp": turn.timestamp,
            "content": turn.thought,
            "tool_calls": [call],
            "usage": {"input_tokens": 0, "output_tokens": turn.tokens},
            "workflow": workflow,
            "step": turn.step,
            "agent": turn.agent,
        },
        {
            "role": "tool",
            "id": f"{turn.key}-result",
            "timestamp": turn.timestamp,
            "tool_call_id": turn.turn_id,
            "content": turn.result,
        },
    ]


def from_event(event: Mapping[str, Any], *, step: str, agent: str, now: datetime) -> WorkflowTurn:
    """Return a turn as a program told it: the fields of a ledger's entry, of which any may be missing."""
    turn = make_turn(
        str(event.get("turn_id") or make_id("t")),
        thought=str(event.get("thought") or ""),
        action=str(event.get("action") or "note"),
        result=str(event.get("result") or ""),
        tokens=int(event.get("tokens") or 0),
        step=step,
        agent=agent,
        now=now,
    )
    timestamp = str(event.get("timestamp") or "")
    return msgspec.structs.replace(turn, timestamp=timestamp) if timestamp else turn


def from_messages(lines: Iterable[bytes], workflow: str | None) -> list[WorkflowTurn]:
    """Return the turns of a workflow (None: of any), of lines that `to_messages` made; one of which anything was
    forgotten is none.
    """
    turns: list[WorkflowTurn] = []
    thought: dict[str, Any] = {}
    for line in lines:
        message = _decode_line(line)
        if message.get("role") == "assistant":
            thought = message if workflow in (None, message.get("workflow")) else {}
        elif thought and message.get("id") == f"{thought['id']}-result":
            turns.append(
                WorkflowTurn(
                    turn_id=message["tool_call_id"],
                    timestamp=thought["timestamp"],
                    thought=thought["content"],
                    action=thought["tool_calls"][0]["function"]["name"],
                    result=message["content"],
                    tokens=thought["usage"]["output_tokens"],
                    step=thought["step"],
                    agent=thought["agent"],
                )
            )
    return turns


def read_open_turns(home: Home, agent: str) -> list[StoredTurn]:
    """Return the turns of an agent that are durable and not yet archived, whichever process writes them.

    agent: as `identity.find_workflow_agent` names it.
    """
    turns: dict[str, StoredTurn] = {}
    for session in session_file.list_sessions(home.path):
        origin = session_file.read_origin(home.path, session)
        if (
            origin is None
            or origin.get("runtime") != WORKFLOW_RUNTIME
            or find_workflow_agent(origin["session"]) != agent
        ):
            continue
        lines = [line for _, line in session_file.read_unarchived(home.path, session, home.user)]
        turns |= {
            turn.key: StoredTurn(
                number=0,
                turn_id=turn.key,
                at_ms=to_ms(datetime.fromisoformat(turn.timestamp)) or 0,
                workflow=origin["conversation"],
                thought=turn.thought,
                action=turn.action,
                result=turn.result,
            )
            for turn in from_messages(lines, None)
        }
    return list(turns.values())


def _decode_line(line: bytes) -> dict[str, Any]:
    """Return the object of a line; {} for a torn or empty one."""
    try:
        return msgspec.json.decode(line, type=dict[str, Any])
    except msgspec.DecodeError:
        return {}
