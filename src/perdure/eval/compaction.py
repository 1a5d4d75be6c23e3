"""Measure what a session still knows after compactions, without a model that judges.

Facts are planted into long conversations. A fact is retained if what a model would read for a question about it holds
its value: head and tail alone, with the summary, and with what recall puts beside the question and the summary. A fact
that was taken back is stale where a line of the summary tells the old value without the new one, or where the old value
is read and the new one is not. It is uncorrected where the new value does not stand behind the old one, in the same
section of the summary. How many statements stand in a line is told beside: a summary of one line has no stale one.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

from perdure import formats, turn
from perdure.capture.lines import split_lines
from perdure.config import PriceConfig, RoleConfig
from perdure.errors import UsageError
from perdure.eval.datasets import load_dataset
from perdure.eval.measures import compute_wilson
from perdure.eval.planted_facts import (
    REVERSED,
    PlantedFact,
    TalkLine,
    holds,
    make_facts,
    make_talk,
    plant,
)
from perdure.formats import detection
from perdure.formats.perdure import CallEntry, Message
from perdure.home import Home, open_home
from perdure.models.chat import Chat, ChatMessage
from perdure.models.gguf import GgufChat
from perdure.models.roles import read_model_settings
from perdure.session.assemble import assemble_zones, find_boundary
from perdure.session.blocks import BlockFile
from perdure.session.budget import count_message
from perdure.session.session import Session, open_session
from perdure.session.summary import LATER, NARRATIVE, parse_summary
from perdure.testing import Question, ScriptedChat
from perdure.types import Live

N_COMPACTIONS = (1, 3, 5)
WINDOW_TOKENS = 128_000
MIN_TOKENS = 40_000  # of a conversation; a shorter one is nearly all tail
MIN_USER_MESSAGES = 12  # facts are planted into them
TAIL_ONLY, QUOTES, SCRIPTED, MODEL = "tail only", "rules", "rules + scripted model", "rules + model"
PRICE = PriceConfig(input=0.15, output=0.60)  # of a million tokens: gpt-4o-mini, in dollars
N_COST_ROUNDS, N_COST_PARAGRAPHS = 100, 16  # 100 rounds of about 1,200 tokens
_DETECTED_BYTES = 65_536


@dataclass(frozen=True)
class RoundCost:
    """The input of one more round of a long conversation."""

    way: str
    n_tokens: int
    money: float


@dataclass(frozen=True)
class Talk:
    """A conversation to plant facts into."""

    name: str
    lines: tuple[TalkLine, ...]


@dataclass
class Tally:
    """Counts of one way to go on after a number of compactions."""

    n_facts: Counter[str] = field(default_factory=Counter)  # kind -> facts
    n_retained: Counter[str] = field(default_factory=Counter)
    n_stale: int = 0
    n_uncorrected: int = 0  # the old value is read, and no newer one behind it
    n_alone: int = 0  # of the stale: the old value is read, and the new one nowhere
    token_shares: list[float] = field(default_factory=list)  # of the whole conversation, for each question
    n_lines: int = 0  # of quotes in summaries
    n_statements: int = 0  # in these lines

    def add(self, fact: PlantedFact, verdict: FactVerdict, token_share: float) -> None:
        """Count one question."""
        self.n_alone += verdict.is_stale and not verdict.is_retained
        self.n_facts[fact.kind] += 1
        self.n_retained[fact.kind] += verdict.is_retained
        self.n_stale += verdict.is_stale
        self.n_uncorrected += verdict.is_uncorrected
        self.token_shares.append(token_share)

    def add_summary(self, summary: str) -> None:
        """Count the lines of a summary, and the statements in them."""
        n_lines = sum(map(len, parse_summary(summary).values()))
        self.n_lines += n_lines
        self.n_statements += n_lines + summary.count(LATER)

    def to_figures(self) -> dict[str, Any]:
        """Return the shares, with a 95 % interval (Wilson) of what is retained."""
        n, retained = self.n_facts.total(), self.n_retained.total()
        low, high = compute_wilson(retained, n)
        return {
            "n": n,
            "retained": retained / n,
            "interval": [round(low, 4), round(high, 4)],
            "by_kind": {
                kind: _estimate_share(self.n_retained[kind], count) for kind, count in sorted(self.n_facts.items())
            },
            "n_reversed": self.n_facts[REVERSED],
            "n_stale": self.n_stale,
            "n_uncorrected": self.n_uncorrected,
            "n_stale_alone": self.n_alone,
            "statements_per_line": self.n_statements / self.n_lines if self.n_lines else 0.0,
            "tokens": sum(self.token_shares) / n,
        }


def _estimate_share(n: int, n_all: int) -> dict[str, float]:
    low, high = compute_wilson(n, n_all)
    return {"at": n / n_all, "low": low, "high": high}


@dataclass(frozen=True)
class CompactionReport:
    """The results: for each number of compactions and each way, what is retained, at which share of the tokens."""

    tables: Mapping[str, Mapping[str, Mapping[str, Any]]]  # "1", "3", "5" -> way -> figures
    names: tuple[str, ...]  # of the conversations
    half: str
    missed: tuple[str, ...] = ()
    costs: tuple[RoundCost, ...] = ()

    @property
    def figures(self) -> Mapping[str, Any]:
        """All results, by name."""
        return {"compactions": self.tables, "half": self.half, "costs": [asdict(cost) for cost in self.costs]}

    def text(self) -> str:
        """Format the results as a table for people."""
        lines = [
            f"compaction: {len(self.names)} conversations, templates: {self.half} (retained: 95 % interval; a "
            "line: statements in a line of the summary; tokens: share of the whole conversation)",
            "",
            f"{'compactions':13}{'what is read':38}{'retained':>9}{'n':>20}{'stale':>7}{'uncorrected':>13}{'alone':>7}"
            f"{'a line':>8}{'tokens':>8}",
        ]
        for number, ways in self.tables.items():
            for way, row in ways.items():
                low, high = row["interval"]
                lines.append(
                    f"{number:13}{way:38}{row['retained']:>9.1%}{f'{low:.0%} to {high:.0%}':>14}{row['n']:>6}"
                    f"{row['n_stale']:>4}/{row['n_reversed']:<2}{row['n_uncorrected']:>13}{row['n_stale_alone']:>7}"
                    f"{row['statements_per_line']:>8.2f}{row['tokens']:>8.1%}"
                )
        kinds = sorted({kind for ways in self.tables.values() for row in ways.values() for kind in row["by_kind"]})
        lines += ["", f"{'retained by kind':51}" + "".join(f"{kind:>12}" for kind in kinds)]
        for number, ways in self.tables.items():
            for way, row in ways.items():
                cells = "".join(
                    f"{row['by_kind'][kind]['at']:>12.0%}" if kind in row["by_kind"] else " " * 12 for kind in kinds
                )
                lines.append(f"{number:13}{way:38}{cells}")
        lines += [row for row in self.missed if row.endswith("nothing was compacted")]
        lines += ["", f"a round after {N_COST_ROUNDS} rounds, at {PRICE.input} per million tokens of input:"]
        lines += [f"  {cost.way:24}{cost.n_tokens:>10,} tokens{cost.money:>10.5f}" for cost in self.costs]
        return "\n".join(lines)

    def errors(self) -> str:
        """List the facts that rules and recall together lost after the most compactions."""
        return "\n".join(self.missed)


def run(
    sources: Sequence[Path] = (),
    *,
    half: str = "dev",
    vectors: bool = True,
    model: Chat | None = None,
    home: Path | None = None,
    n_compactions: Sequence[int] = N_COMPACTIONS,
    talks: Sequence[Talk] = (),
    session: Mapping[str, int] = {},
    progress: Callable[[int, int], None] | None = None,
) -> CompactionReport:
    """Measure conversations: those of sources (a set in the normalised layout, a transcript, or a folder of them), or
    one of our own. model: a summariser, beside the rules alone and a scripted one. talks: instead of sources. session:
    settings of that section.

    Raises UsageError if no source has a conversation of enough tokens between two speakers.
    """
    if not talks:
        talks = [talk for source in sources for talk in load_talks(source)] if sources else [make_own_talk(1)]
    if not talks:
        raise UsageError(f"no conversation of {MIN_TOKENS:,} tokens or more between a user and an assistant")
    ways: dict[str, Callable[[], Chat | None]] = {QUOTES: lambda: None, SCRIPTED: make_lossy_summariser}
    if model is not None:
        ways[MODEL] = lambda: model
    tallies: dict[str, dict[str, Tally]] = {}
    missed: list[str] = []
    n_steps, n_done = len(talks) * len(n_compactions) * len(ways), 0
    with tempfile.TemporaryDirectory(prefix="perdure-eval-") as scratch:
        for number in n_compactions:
            for seed, talk in enumerate(talks):
                for way, make_summariser in ways.items():
                    if progress:
                        progress(n_done, n_steps)
                    n_done += 1
                    trial = _Trial(talk, half, seed, number, way, make_summariser(), vectors, session)
                    folder = (home or Path(scratch)) / f"c{n_done}"
                    lost = trial.measure(folder, tallies.setdefault(str(number), {}))
                    is_shown = way not in tallies[str(number)] or (way == QUOTES and number == max(n_compactions))
                    missed += lost if is_shown else []
    figures = {
        number: {way: tally.to_figures() for way, tally in ways_tallies.items()}
        for number, ways_tallies in tallies.items()
    }
    names = tuple(talk.name for talk in talks)
    return CompactionReport(figures, names, half, tuple(missed), tuple(measure_costs()))


def measure_costs() -> Iterator[RoundCost]:
    """Yield what the input of one more round costs after 100 rounds of 1,200 tokens: whole, compacted, cut off."""
    lines = make_talk(2, n_rounds=N_COST_ROUNDS, n_paragraphs=N_COST_PARAGRAPHS)
    with tempfile.TemporaryDirectory(prefix="perdure-eval-") as scratch, open_home(Path(scratch) / "h") as home:
        chat = ScriptedChat(window_tokens=WINDOW_TOKENS)
        with open_session(home, chat=chat, mode="keyword") as session:
            for n, line in enumerate(lines):
                append_line(session, line, n)
            whole = session.measure().n_tokens
            session.compact()
            zones = assemble_zones(session.log.find_path(), {})
    n_kept = sum(map(count_message, [*zones.head, *zones.tail]))
    n_summary = sum(map(count_message, zones.summary))
    for way, n_tokens in (("whole", whole), ("compacted", n_kept + n_summary), ("head and tail alone", n_kept)):
        yield RoundCost(way, n_tokens, n_tokens * PRICE.input / 1_000_000)


@dataclass(frozen=True)
class _Trial:
    """One conversation with its facts, compacted a number of times in one way."""

    talk: Talk
    half: str
    seed: int
    n_compactions: int
    way: str
    summariser: Chat | None
    vectors: bool
    session: Mapping[str, int]

    def measure(self, folder: Path, tallies: dict[str, Tally]) -> list[str]:
        """Count what is retained, and return the facts that are not."""
        facts = make_facts(self.half, self.seed, without="\n".join(line.text for line in self.talk.lines))
        lines = plant(self.talk.lines, facts, self.seed)
        n_all = sum(count_message(ChatMessage("user", line.text)) for line in lines)
        folder.mkdir(mode=0o700, parents=True)
        settings = "".join(f"{name} = {value}\n" for name, value in self.session.items())
        (folder / "config.toml").write_text(f"[session]\n{settings}", encoding="utf-8")
        chats = {"summariser": self.summariser} if self.summariser else {}
        with open_home(folder, user="eval", chats=chats) as home:
            chat = ScriptedChat(window_tokens=WINDOW_TOKENS)
            with open_session(home, chat=chat, mode=None if self.vectors else "keyword") as session:
                self._hold(session, lines)
                if self.vectors:
                    home.upkeep.catch_up()
                    home.upkeep.embed()
                return self._ask(home, session, facts, n_all, tallies)

    def _hold(self, session: Session, lines: Sequence[TalkLine]) -> None:
        """Log the conversation, with a compaction after each part of it."""
        ends = {round(len(lines) * n / self.n_compactions) for n in range(1, self.n_compactions + 1)}
        for n, line in enumerate(lines, start=1):
            append_line(session, line, n)
            if n in ends:
                session.compact()
        session.log.archive()

    def _ask(
        self, home: Home, session: Session, facts: Sequence[PlantedFact], n_all: int, tallies: dict[str, Tally]
    ) -> list[str]:
        path = session.log.find_path()
        boundary = find_boundary(path)
        if boundary is None:
            return [f"{self.talk.name}: {self.way}: the summariser failed, and nothing was compacted"]
        zones = assemble_zones(path, {})
        beside = BlockFile(home.path, session.session, is_kept=True).read().get(boundary.id, "")
        n_beside = count_message(ChatMessage("user", beside)) if beside else 0
        kept_text = "\n".join(message.text for message in [*zones.head, *zones.tail])
        n_kept = sum(map(count_message, [*zones.head, *zones.tail]))
        n_summary = sum(map(count_message, zones.summary))
        since_at = next(entry.timestamp for entry in path if entry.id == boundary.first_kept)
        live = Live(session.session, since_at)
        lost: list[str] = []
        for fact in facts:
            recalled = home.recall(fact.ask, session=live, mode=None if self.vectors else "keyword")
            block, _ = turn.render_block(recalled.cues, "0" * 16)
            n_block = count_message(ChatMessage("user", block))
            readings = {
                self.way: (kept_text, boundary.summary, n_kept + n_summary),
                f"{self.way} + recall": (
                    f"{kept_text}\n{beside}\n{block}",
                    boundary.summary,
                    n_kept + n_summary + n_beside + n_block,
                ),
            }
            if self.summariser is not None:
                told = "\n".join(parse_summary(boundary.summary).get(NARRATIVE, ()))
                n_told = n_kept + count_message(ChatMessage("user", told))
                alone = self.way.removeprefix(f"{QUOTES} + ") + " alone"
                readings |= {
                    alone: (kept_text, told, n_told),
                    f"{alone} + recall": (f"{kept_text}\n{beside}\n{block}", told, n_told + n_beside + n_block),
                }
            else:
                readings |= {
                    TAIL_ONLY: (kept_text, "", n_kept),
                    f"{TAIL_ONLY} + recall": (f"{kept_text}\n{block}", "", n_kept + n_block),
                }
            for way, (read, summary, n_tokens) in readings.items():
                tallies.setdefault(way, Tally()).add(fact, judge(fact, read, summary), n_tokens / n_all)
            read, summary, _ = readings[f"{self.way} + recall"]
            verdict = judge(fact, read, summary)
            if verdict.is_stale or not verdict.is_retained:
                state = "stale" if verdict.is_stale else "lost"
                lost.append(f"{self.talk.name}: {state}: {fact.say} {fact.later} / {fact.ask}")
        for way in (self.way, f"{self.way} + recall"):
            tallies[way].add_summary(boundary.summary)
        return lost


class FactVerdict(NamedTuple):
    """What a model reads of one fact."""

    is_retained: bool  # its value
    is_stale: bool = False  # a value that was taken back, in a line without the new one, or without it at all
    is_uncorrected: bool = False  # a value that was taken back, and no newer one behind it in that section


def judge(fact: PlantedFact, read: str, summary: str) -> FactVerdict:
    """Return what is read of a fact.

    read: what stands in full, and what recall has; summary: is read beside it, each line as what holds now.

    >>> fact = PlantedFact("reversed", "", "", "81", later="It is 81 now.", old="80")
    >>> summaries = "## Fact\\n- port 80", "## Fact\\n- port 80\\n- port 81", "## Fact\\n- port 81, not 80"
    >>> [tuple(judge(fact, "", summary)) for summary in summaries]
    [(False, True, True), (True, True, False), (True, False, False)]
    """
    is_retained = holds(read, fact.answer) or holds(summary, fact.answer)
    if not fact.old:
        return FactVerdict(is_retained)
    has_old_line = any(holds(row, fact.old) and not holds(row, fact.answer) for row in summary.splitlines())
    is_lost = holds(read, fact.old) and not is_retained
    is_last = any(_ends_old("\n".join(rows), fact) for rows in parse_summary(summary).values())
    return FactVerdict(is_retained, has_old_line or is_lost, is_lost or is_last)


def _ends_old(section: str, fact: PlantedFact) -> bool:
    """Return True if the last statement with the old value stands behind all with the new one."""
    statements = section.replace(LATER, "\n").splitlines()
    old, new = ([n for n, row in enumerate(statements) if holds(row, value)] for value in (fact.old, fact.answer))
    return max(old, default=-1) > max(new, default=-1)


def append_line(session: Session, line: TalkLine, number: int) -> None:
    """Log a line as it would stand in a session; a tool's output gets the call that it answers."""
    log = session.log
    if line.role == "tool":
        call = CallEntry(id=f"c{number}", name="tool", input={})
        log.append(Message(role="assistant", calls=(call,), **log.make_fields()))
        log.append(Message(role="tool", text=line.text, call_id=call.id, tool="tool", **log.make_fields()))
        return
    role: Literal["user", "assistant"] = "user" if line.role == "user" else "assistant"
    log.append(Message(role=role, text=line.text, **log.make_fields()))


def make_lossy_summariser() -> ScriptedChat:
    """Return a model that tells the first words of every sixth paragraph, and loses all else."""

    def summarise(question: Question) -> str:
        paragraphs = question.messages[-1].text.split("\n\n")[::6]
        return (
            "\n".join(f"- Fact: {' '.join(paragraph.split()[:12])}" for paragraph in paragraphs[:40]) or "- Fact: talk"
        )

    return ScriptedChat([summarise] * 10_000, name="scripted:lossy", window_tokens=WINDOW_TOKENS)


def open_summariser(path: Path) -> Chat:
    """Return the model of a GGUF file."""
    role = RoleConfig(provider="gguf", model=str(path), max_output_tokens=400, timeout_s=3600)
    return GgufChat(read_model_settings("summariser", role))


# conversations --------------------------------------------------------------------------------------------------


def make_own_talk(seed: int, *, n_rounds: int = 250) -> Talk:
    """Return a conversation that Perdure makes itself: about 240 tokens a round."""
    return Talk(f"own-{seed}", tuple(make_talk(seed, n_rounds=n_rounds)))


def load_talks(source: Path) -> Iterator[Talk]:
    """Yield the conversations of a set or of transcripts that are long enough."""
    if (source / "docs.jsonl").is_file():
        candidates = _read_dataset(source)
    else:
        paths = sorted(path for path in source.rglob("*") if path.is_file()) if source.is_dir() else [source]
        candidates = map(_read_transcript, paths)
    for talk in candidates:
        is_long = sum(count_message(ChatMessage("user", line.text)) for line in talk.lines) >= MIN_TOKENS
        if is_long and sum(line.role == "user" for line in talk.lines) >= MIN_USER_MESSAGES:
            yield talk


def _read_dataset(source: Path) -> Iterator[Talk]:
    for group, docs in load_dataset(source).group_docs().items():
        if {doc.speaker for doc in docs} <= {"user", "assistant"}:
            lines = [TalkLine(doc.speaker, doc.text.removeprefix(f"{doc.speaker}: ")) for doc in docs]
            yield Talk(group, tuple(lines))


def _read_transcript(path: Path) -> Talk:
    """Return the messages of a transcript; none of a file of another kind."""
    data = path.read_bytes()
    runtime = detection.detect(data[:_DETECTED_BYTES], path.name)
    if runtime is None or not detection.is_append_only(runtime, data[:_DETECTED_BYTES]):
        return Talk(path.stem, ())
    turns = formats.parse(runtime, list(split_lines(data))).turns
    lines = [
        TalkLine(turn.role, words)
        for turn in turns
        if turn.role in ("user", "assistant", "tool") and not turn.thread and (words := turn.text("text", "result"))
    ]
    while lines and lines[0].role != "user":
        lines.pop(0)
    return Talk(path.stem, tuple(lines))
