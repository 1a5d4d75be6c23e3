"""The runs of a home, as its principal may read them: trees, transcripts, counts, and where a turn comes from."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from perdure import config as settings
from perdure.archive import forget
from perdure.archive.store import LedgerEntry
from perdure.capture import host_memories, transcripts
from perdure.connections import Connections
from perdure.errors import IndexFault, NotFound
from perdure.formats.run_turns import parse_run
from perdure.index import keyword, memory_rows, runs
from perdure.types import Columns, Facets, Filters, Hit, Node, ParsedLines, Principal, Run, RunView, Span

# Loaded where they are used: only the page, the terminal and MCP ask for them.
if TYPE_CHECKING:
    from perdure.formats.fixes import Fix
    from perdure.index.images import CapturedImage
    from perdure.index.session_turns import PromptExchange, PromptTurn, QuotedTurn
    from perdure.index.statistics import Growth, MachineCaptures, ParagraphCounts
    from perdure.index.threads import SessionThread


class Transcript(Struct, frozen=True):
    """A captured run with what its bytes say."""

    run: Run
    parsed: ParsedLines
    abandoned: frozenset[int]  # offsets of turns on branches that the session left


class Runs:
    """The runs that the principal of a home may read."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._archive = connections.archive

    # one run ----------------------------------------------------------------------------------------------

    def get(self, run_id: str) -> RunView:
        """Return a run with everything derived about it. Raises NotFound for what is not the principal's."""
        return runs.read_run(self._connections.index(), self._connections.principal, run_id)

    def columns(self, run_id: str) -> Columns:
        """Return the six columns of a run."""
        return runs.read_columns(self._connections.index(), self._connections.principal, run_id)

    def transcript(self, run_id: str) -> Transcript:
        """Return a captured run and its turns, read from the archive; masked if it is another user's. Raises
        NotFound.
        """
        stored = self._readable(run_id)
        run, lines = self._archive.read_checked_lines(stored)
        parsed = parse_run(run, lines)
        if stored.user != self._connections.user:
            from perdure.access import grantee_view

            run, parsed = grantee_view.mask_run(run), grantee_view.mask_parsed_lines(parsed)
        try:
            abandoned = frozenset(runs.list_abandoned_offsets(self._connections.index(), run_id))
        except IndexFault:
            abandoned = frozenset()
        return Transcript(run, parsed, abandoned)

    def fixes(self, run_ids: Iterable[str]) -> list[Fix]:
        """Return the failures that these runs of one session, in order, fixed. Raises NotFound."""
        from perdure.formats.fixes import find_fixes

        return find_fixes(turn for run_id in run_ids for turn in self.transcript(run_id).parsed.turns)

    def raw(self, run_id: str) -> bytes:
        """Return the bytes of a captured run. Raises NotFound.

        Its owner gets them as they were captured, without what was forgotten; others with every secret masked.
        """
        stored = self._readable(run_id)
        raw = self._archive.read(stored)
        if stored.user == self._connections.user:
            return raw
        from perdure.access import grantee_view

        return grantee_view.mask_lines(raw)

    def raw_lines(self, run_id: str, offsets: Collection[int]) -> list[bytes]:
        """Return the lines of a captured run that begin at these offsets of its source, as `raw` has them."""
        stored = self._readable(run_id)
        raw = [line.raw for line in self._archive.read_lines(stored) if line.offset in offsets]
        if stored.user == self._connections.user:
            return raw
        from perdure.access import grantee_view

        return [grantee_view.mask_lines(line) for line in raw]

    def turn_offsets(self, run_id: str) -> set[int]:
        """Return the offsets of a run's turns (an inline sidechain's, say) in the bytes that hold them.

        Raises NotFound.
        """
        self.get(run_id)
        return runs.list_turn_offsets(self._connections.index(), self._connections.principal, run_id)

    def own(self, run_id: str) -> LedgerEntry:
        """Return a captured run of the principal's. Raises NotFound, also for what others share."""
        stored = self._archive.get_entry(run_id)
        if stored.user != self._connections.user:
            raise NotFound(run_id)
        return stored

    def find_captured_run(self, run_id: str) -> str:
        """Return the id of the run whose bytes hold this one: of a sidechain its parent, else the run itself."""
        view = self.get(run_id)
        return str(view.parent_run_id) if view.sidechain else run_id

    def _readable(self, run_id: str) -> LedgerEntry:
        """Return a captured run of the principal's, or of one who lets them read it. Raises NotFound."""
        stored = self._archive.get_entry(run_id)
        if stored.user != self._connections.user:
            if not self._connections.owners():
                raise NotFound(run_id)
            try:
                runs.read_run(self._connections.index(), self._connections.principal, run_id)
            except IndexFault as error:  # nothing says that it may be read
                raise NotFound(run_id) from error
        return stored

    # trees and threads ------------------------------------------------------------------------------------

    def forest(
        self, filters: Filters | None = None, *, root: str | None = None, limit: int = 500, offset: int = 0
    ) -> list[Node]:
        """Return the trees of the newest runs, whole, newest first.

        filters: agents, projects, runtimes, machines, tags, and since when a run was active. limit: how many runs.
        offset: how many newer trees to leave out.
        """
        index, principal = self._connections.index(), self._connections.principal
        return runs.build_forest(index, principal, filters or Filters(), root=root, limit=limit, offset=offset)

    def descendants(self, run_id: str) -> list[RunView]:
        """Return the runs below a run."""
        return runs.list_descendants(self._connections.index(), self._connections.principal, run_id)

    def conversation(self, conversation: str) -> list[RunView]:
        """Return the captured runs of a conversation in the order in which they were said."""
        return runs.list_conversation_runs(self._connections.index(), self._connections.principal, conversation)

    def first_runs(self, run_ids: Iterable[str]) -> dict[str, RunView]:
        """Return, for each of these runs, the run with which its conversation begins."""
        return runs.find_first_runs(self._connections.index(), self._connections.principal, run_ids)

    def thread(self, name: str) -> SessionThread:
        """Return the thread of messages that a run or a turn belongs to, page by page. Raises NotFound."""
        from perdure.index.threads import SessionThread

        return SessionThread(self._connections.index(), self._connections.principal, name)

    # turns ------------------------------------------------------------------------------------------------

    def locate_turn(self, turn_id: str) -> tuple[str, int]:
        """Return (captured run, offset) of a turn."""
        run_id, offset, _ = runs.locate_turn(self._connections.index(), self._connections.principal, turn_id)
        return run_id, offset

    def turn_preview(self, turn_id: str) -> str:
        """Return the beginning of a turn on one line, masked. Raises NotFound."""
        run_id, offset = self.locate_turn(turn_id)
        (target,) = forget.target_turns(self._archive, self._readable(run_id), {offset})
        return target.preview

    def first_chunks(self, turn_ids: Sequence[str]) -> dict[str, list[Hit]]:
        """Return the first chunks, masked, of those turns that the principal may read: what a search shows of them."""
        index = self._connections.index()
        chunks = keyword.list_first_chunks(index, self._connections.principal, turn_ids)
        return {turn_id: list(keyword.describe_calls(index, hits)) for turn_id, hits in chunks.items()}

    def source_of(self, span: Span) -> tuple[RunView, str | None]:
        """Return (the run of a span, the id of its first turn or None if that is gone). Raises NotFound."""
        return self.get(span.run_id), memory_rows.find_first_turn(self._connections.index(), span)

    def prompts(self, runtime: str, session: str, *, since_at: datetime, until_at: datetime) -> list[PromptTurn]:
        """Return what the principal asked in a session between two moments, in order."""
        from perdure.index import session_turns

        index, user = self._connections.index(), self._connections.user
        return session_turns.list_prompts(index, user, runtime, session, since_at=since_at, until_at=until_at)

    def exchange(self, runtime: str, session: str, at: datetime) -> PromptExchange | None:
        """Return what the principal asked in a session at a moment and the answer; None if they asked nothing."""
        from perdure.index import session_turns

        return session_turns.find_exchange(self._connections.index(), self._connections.user, runtime, session, at)

    def quote_turn(self, turn_id: str) -> QuotedTurn | None:
        """Return one turn with its author, time and place; None if the principal may read no such turn."""
        from perdure.index import session_turns

        return session_turns.quote_turn(self._connections.index(), self._connections.principal, turn_id)

    # names and counts -------------------------------------------------------------------------------------

    def resolve(self, prefix: str) -> tuple[str, str]:
        """Return ("turn" | "run" | "conversation", full id) for the beginning of an id. Raises NotFound."""
        return runs.resolve_id(self._connections.index(), self._connections.principal, prefix)

    def names(self, kind: Literal["project", "tag", "runtime", "machine", "agent"]) -> list[str]:
        """Return the names of a kind on anything that the principal may read."""
        return runs.list_names(self._connections.index(create=True), self._connections.principal, kind)

    def projects(self, *, is_own: bool = False) -> list[str]:
        """Return the projects of which the principal may read anything, by their paths; "" for runs without one.

        is_own: those of their own runs alone.
        """
        if is_own:
            return runs.list_names(self._connections.index(create=True), Principal(self._connections.user), "project")
        return self.names("project")

    def facets(self, query: str, *, filters: Filters | None = None) -> Facets:
        """Count the turns that match by runtime, machine, project, tag, agent, role and kind."""
        index, principal = self._connections.index(), self._connections.principal
        return keyword.count_facets(index, principal, query, filters=filters or Filters())

    def messages_by_month(self) -> dict[str, int]:
        """Return how many messages of people there are of each month (yyyy-mm, in UTC)."""
        return runs.count_messages_by_month(self._connections.index(), self._connections.principal)

    def count_paragraphs(self) -> ParagraphCounts:
        """Count the paragraphs of host files that are believed, and those that are only found."""
        from perdure.index import statistics

        runtimes = (host_memories.MEMORY_RUNTIME, host_memories.INSTRUCTIONS_RUNTIME)
        return statistics.count_paragraphs(self._connections.index(), Principal(self._connections.user), runtimes)

    def iter_images(self, words: Sequence[str] = ()) -> Iterator[CapturedImage]:
        """Yield the principal's own turns with images, newest first; with words, those with all of them around it."""
        from perdure.index import images

        yield from images.iter_images(self._connections.index(), self._connections.user, words)

    def growth(self) -> Growth:
        """Return how much of the principal's own there is by month and by week."""
        from perdure.index import statistics

        index, principal = self._connections.index(create=True), Principal(self._connections.user)
        with index.begin_read():
            return statistics.Growth(
                statistics.count_by_month(index, principal), statistics.count_memories_by_week(index, principal)
            )

    def count_saved_sessions(self) -> int:
        """Return how many sessions of this machine are in the archive alone: their client deleted the transcript."""
        from perdure.index import statistics

        index, machine = self._connections.index(create=True), self._connections.config.machine
        roots = dict(transcripts.list_roots(settings.find_user_home(), settings.read_variable))
        roots.pop("opencode")  # one database for all its sessions
        is_there: dict[tuple[str, str], bool] = {}
        for runtime, session, path in statistics.list_source_paths(index, Principal(self._connections.user), machine):
            if runtime in roots and "/" not in session and Path(path).is_relative_to(roots[runtime]):
                source = runtime, session
                is_there[source] = is_there.get(source, False) or Path(path).is_file()
        return sum(not exists for exists in is_there.values())

    def captures_by_machine(self) -> dict[str, MachineCaptures]:
        """Return what each machine captured of the principal's own, by the machine's name."""
        from perdure.index import statistics

        return statistics.count_captures_by_machine(
            self._connections.index(create=True), Principal(self._connections.user)
        )
