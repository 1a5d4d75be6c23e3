"""The messages of which a summary is made: read them from the archive, and shorten them.

A person's words stay as they were, an agent's are shortened, tools are left out. Secrets are masked
before anything is shortened. If there is too much, the oldest messages are dropped.

`TurnSource` reads what is new since a change of the archive, or what was said between two moments. It
skips sub-agents, the miner, sessions that may not be kept, other agents, abandoned branches, and turns
that another transcript already has. Texts that read like an injection are left out. Everything else here
is pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, tzinfo
from typing import Literal

from perdure.access.redact import mask
from perdure.access.scan import Finding
from perdure.archive.archive import Archive
from perdure.archive.store import LedgerEntry
from perdure.capture.events import is_command
from perdure.errors import DamagedRun, NotFound
from perdure.index import session_turns
from perdure.index.store import IndexConnection
from perdure.regex import lazy_re
from perdure.text import ELLIPSIS, clip, one_line, shorten_project
from perdure.types import Origin, Run, Span, Turn

MAX_QUESTION_CHARS = 30_000  # of the messages in one question (row F09)
MAX_RULES_CHARS = 200_000  # of the messages that rules read: they cost time, but no tokens
MAX_ANSWER_CHARS = 200  # of one agent message (row F09)
MAX_TYPED_CHARS = 20_000  # a longer message counts as pasted, as in memories.statements
_PASTED_EXCERPT_CHARS = 400  # characters kept of a pasted message
_MAX_ID_CHARS = 18
_WITHOUT_MARKUP = str.maketrans("", "", "*()\n")  # characters that would end a mark or a heading early
_CODE_BLOCK = lazy_re(r"^ {0,3}(```+|~~~+)[^\n]*\n(.*?)(?:^ {0,3}\1[ \t]*$|\Z)", 0x10 | 0x08)  # DOTALL | MULTILINE


@dataclass(frozen=True, slots=True)
class SummarySession:
    """The session in which a message was said."""

    runtime: str
    conversation: str
    project: str | None = None

    @property
    def short_id(self) -> str:
        """The id of the session.

        Of a long id: the start, by which a person finds it, and the end, which tells it from others.

        >>> SummarySession("codex", "019b2c3d-7e1f-7a00-8000-0123456789ab").short_id
        '019b2c3d-7e1f…89ab'
        """
        name = self.conversation.translate(_WITHOUT_MARKUP)
        return name if len(name) <= _MAX_ID_CHARS else f"{name[:13]}{ELLIPSIS}{name[-4:]}"

    @property
    def project_name(self) -> str:
        """The last part of the project's path, on any system; "" without a project."""
        return shorten_project(self.project).translate(_WITHOUT_MARKUP)


@dataclass(frozen=True, slots=True)
class SummaryMessage:
    """One message, shaped for a summary."""

    stated_at: datetime
    author: Literal["person", "agent"]
    text: str  # masked; an agent's is one line
    session: SummarySession
    span: Span


def shape_turn(turn: Turn) -> str:
    r"""Return the text of a turn for a summary.

    Returns "" for tools, machine turns, summaries and turns that only call a tool.

    >>> from perdure.types import Part
    >>> shape_turn(Turn("assistant", "agent", ((0, 9),), (Part("text", "Done.\n```\nx\n```\nAll pass."),)))
    'Done. [code: 1 lines] All pass.'
    """
    if turn.is_summary or turn.author not in ("person", "agent"):
        return ""
    if turn.author == "agent":
        text = _CODE_BLOCK.sub(lambda match: f"[code: {match[2].count(chr(10))} lines]", turn.text("text"))
        return one_line(mask(text), MAX_ANSWER_CHARS)
    return "\n\n".join(filter(None, (_shape_part(part.kind, part.text) for part in turn.parts)))


def _shape_part(kind: str, text: str) -> str:
    """Return one part of a person's message: as typed, or a note that something was pasted."""
    if kind == "pasted":
        return f"[pasted: {len(text)} characters]"
    if kind != "text" or is_command(text):
        return ""
    masked_text = mask(text).strip()
    if len(masked_text) > MAX_TYPED_CHARS:
        return f"{clip(masked_text, _PASTED_EXCERPT_CHARS)} [pasted: {len(masked_text)} characters]"
    return masked_text


def select_newest(messages: Iterable[SummaryMessage], max_chars: int = MAX_QUESTION_CHARS) -> list[SummaryMessage]:
    """Return the newest messages that fit into so many characters as `render_sessions` writes them, oldest first."""
    newest: list[SummaryMessage] = []
    sessions: set[SummarySession] = set()
    left_chars = max_chars
    for message in sorted(messages, key=_to_sort_key, reverse=True):
        left_chars -= len(_render_message(message, None)) + 1
        left_chars -= 0 if message.session in sessions else len(_render_heading(message.session)) + 2
        if left_chars < 0:
            break
        sessions.add(message.session)
        newest.append(message)
    return newest[::-1]


def render_sessions(messages: Sequence[SummaryMessage], zone: tzinfo | None) -> str:
    """Render the messages by session, the session that began first at the top; times are in this zone."""
    return "\n\n".join(
        "\n".join([_render_heading(session), *(_render_message(message, zone) for message in session_messages)])
        for session, session_messages in group_by_session(messages).items()
    )


def group_by_session(messages: Iterable[SummaryMessage]) -> dict[SummarySession, list[SummaryMessage]]:
    """Group messages by session, oldest first."""
    by_session: dict[SummarySession, list[SummaryMessage]] = {}
    for message in sorted(messages, key=_to_sort_key):
        by_session.setdefault(message.session, []).append(message)
    return by_session


def group_by_project(messages: Iterable[SummaryMessage]) -> dict[str, list[SummaryMessage]]:
    """Group messages by project, "" for none; the project that was spoken of first comes first."""
    by_project: dict[str, list[SummaryMessage]] = {}
    for message in sorted(messages, key=_to_sort_key):
        by_project.setdefault(message.session.project or "", []).append(message)
    return by_project


def merge_spans(messages: Iterable[SummaryMessage], old_spans: Iterable[Span] = ()) -> tuple[Span, ...]:
    """Return one span for each run, which covers all messages and the old spans.

    >>> merge_spans([], [Span("r", 5, 9), Span("r", 0, 2), Span("q", 1, 3)])
    (Span(run_id='q', from_offset=1, to_offset=3), Span(run_id='r', from_offset=0, to_offset=9))
    """
    bounds: dict[str, tuple[int, int]] = {}
    for span in (*(Span(*span) for span in old_spans), *(message.span for message in messages)):
        start, end = bounds.get(span.run_id, (span.from_offset, span.to_offset))
        bounds[span.run_id] = min(start, span.from_offset), max(end, span.to_offset)
    return tuple(Span(run_id, start, end) for run_id, (start, end) in sorted(bounds.items()))


def _to_sort_key(message: SummaryMessage) -> tuple[datetime, str, int]:
    return message.stated_at, message.span.run_id, message.span.from_offset


def _render_heading(session: SummarySession) -> str:
    project_part = f", project {session.project_name}" if session.project_name else ""
    return f"Session {session.short_id} ({session.runtime}{project_part}):"


def _render_message(message: SummaryMessage, zone: tzinfo | None) -> str:
    first, *other_lines = message.text.splitlines()
    return "\n".join(
        [
            f"- {message.stated_at.astimezone(zone):%Y-%m-%d %H:%M} {message.author}: {first}",
            *(f"  {line}" for line in other_lines),
        ]
    )


MAX_RUNS = 1000  # runs that one summary reads, the newest first
StopCheck = Callable[[], bool]


@dataclass(frozen=True)
class RecentTurns:
    """The messages that were read, as far as they fit."""

    messages: list[SummaryMessage]  # oldest first
    n_left: int = 0  # older messages that were read and did not fit
    n_suspect: int = 0  # messages that read like an injection


@dataclass(frozen=True)
class TurnSource:
    """Reads messages from a home.

    find_refusal: why a session may not be kept. find_injections: the scanner's findings in a text.
    """

    user: str
    agent: str
    archive: Archive
    index: Callable[[], IndexConnection]
    find_refusal: Callable[[Origin], str | None]
    find_injections: Callable[[str], Sequence[Finding]]
    _is_refused_by_origin: dict[Origin, bool] = field(default_factory=dict)

    def read_since(
        self, after_change: int, upto_change: int, *, max_chars: int = MAX_QUESTION_CHARS, stop: StopCheck
    ) -> RecentTurns:
        """Read the newest messages that were captured after one change of the archive and up to another."""
        return self._read_runs(
            self.archive.ledger.list_newest(self.user, after_change, upto_change, MAX_RUNS),
            lambda _: True,
            max_chars,
            stop,
        )

    def read_between(
        self, from_at: datetime, before_at: datetime, *, max_chars: int = MAX_QUESTION_CHARS, stop: StopCheck
    ) -> RecentTurns:
        """Read the newest messages that were said from one moment until before another."""
        nearby_runs = self.archive.ledger.list_runs_between(
            self.user, int(from_at.timestamp()), int(before_at.timestamp())
        )
        runs = [
            (1 << 40, held_run) for held_run in sorted(nearby_runs, key=lambda held_run: held_run.run_id, reverse=True)
        ]
        return self._read_runs(runs, lambda message: from_at <= message.stated_at < before_at, max_chars, stop)

    def _read_runs(
        self,
        runs: Iterable[tuple[int, LedgerEntry]],
        is_wanted: Callable[[SummaryMessage], bool],
        max_chars: int,
        stop: StopCheck,
    ) -> RecentTurns:
        """Read the messages of runs, which come latest end first.

        It stops when the messages later than any in the remaining runs no longer fit.
        """
        messages: list[SummaryMessage] = []
        n_suspect = 0
        for ended_s, held_run in runs:
            ended_at = datetime.fromtimestamp(min(ended_s + 1, 1 << 37), UTC)
            if stop() or sum(len(message.text) for message in messages if message.stated_at >= ended_at) > max_chars:
                break
            for message in filter(is_wanted, self._read_run(held_run)):
                if self.find_injections(message.text):
                    n_suspect += 1
                else:
                    messages.append(message)
        newest_messages = select_newest(messages, max_chars)
        return RecentTurns(newest_messages, len(messages) - len(newest_messages), n_suspect)

    def _read_run(self, held_run: LedgerEntry) -> Iterator[SummaryMessage]:
        """Yield the messages of a captured run that no other run has."""
        try:
            if not self._can_read(self.archive.read_run(held_run)):
                return
            if not (offsets := session_turns.list_message_offsets(self.index(), held_run.run_id)):
                return
            run, parsed = self.archive.read_turns(held_run)
        except (DamagedRun, NotFound):  # `verify` reports it
            return
        session = SummarySession(run.source.runtime, run.conversation, run.project)
        for turn in parsed.turns:
            text = shape_turn(turn) if turn.offset in offsets else ""
            if text and turn.author in ("person", "agent"):
                span = Span(run.run_id, turn.offset, turn.lines[0][1])
                yield SummaryMessage(
                    _find_stated_at(run, turn), "person" if turn.author == "person" else "agent", text, session, span
                )

    def _can_read(self, run: Run) -> bool:
        """Return True if a run belongs to a session that may be summarised."""
        is_subagent = run.parent_session is not None and not run.fork
        if is_subagent or run.agent != self.agent or session_turns.MINING_TAG in run.tags:
            return False
        source = run.source
        origin = Origin(source.runtime, source.session, run.conversation, run.parent_session, run.cwd or run.project)
        if origin not in self._is_refused_by_origin:
            self._is_refused_by_origin[origin] = self.find_refusal(origin) is not None
        return not self._is_refused_by_origin[origin]


def _find_stated_at(run: Run, turn: Turn) -> datetime:
    """Return the time at which a turn was said, at the latest the time of its capture."""
    return min(turn.stated_at or run.ended_at or run.captured_at, run.captured_at)
