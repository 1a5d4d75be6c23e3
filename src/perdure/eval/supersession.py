"""Measure recall of facts that changed: with turns alone, and with memories made from statements.

Each world of `perdure.eval.change_worlds` is one owner in a scratch home; every message is a turn that a
person typed. The same questions are asked twice, before and after the home keeps the statements. A cue is
judged only by the values in its text, so that turns and memories count alike; a cue that is labelled as
history tells the past, whatever else it says.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

from perdure import text
from perdure.config import EmbedderConfig
from perdure.errors import UsageError
from perdure.eval import measures
from perdure.eval.change_worlds import HALVES, ChangeMessage, ChangeQuestion, ChangeWorld, make_worlds
from perdure.home import Home, open_home
from perdure.models.embedder import Embedder
from perdure.models.local_embedders import choose_embedder
from perdure.types import Cue, Memory

NOW = ("now", "control")  # what is true
HISTORY = ("before", "then")  # what was
FIRST, FOUND, MISLED = "current first", "current found", "misled"
ANSWERED, ANSWERED_FIRST = "answered", "answered first"
SILENT = "silent"
KeepFunction = Callable[[Home], bool]
SupersededFunction = Callable[[Home], Iterable[datetime]]
FigureRow = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ShownCue:
    """A cue as it is judged."""

    text: str
    is_history: bool = False  # labelled as what no longer holds


@dataclass(frozen=True, slots=True)
class AnsweredQuestion:
    """A question and the measures of its cues, each 1 or 0."""

    question: ChangeQuestion
    holds: Mapping[str, float]
    cues: tuple[str, ...] = ()  # their texts


@dataclass(frozen=True, slots=True)
class FalseEndings:
    """The memories of one world that were ended and should not have been."""

    language: str
    n_controls: int
    n_ended_controls: int  # things that are not the same, or both true, of which one ended
    n_current: int
    n_ended_current: int  # facts whose last statement ended
    examples: tuple[str, ...] = ()  # what was ended though it holds


@dataclass(frozen=True, slots=True)
class SupersessionReport:
    """The results on one half."""

    half: str
    figures: Mapping[str, Any]  # plain values, for JSON
    answered_questions: Sequence[AnsweredQuestion] = ()  # after memories were kept, where they were
    ended_texts: Sequence[str] = ()  # messages whose memory was ended though it holds

    def errors(self) -> str:
        """List wrong answers and wrongly ended memories, of the half that may be looked at."""
        if self.half != "dev":
            return "of this half only figures are shown"
        wrong_answers = [
            answered_question
            for answered_question in self.answered_questions
            if not answered_question.holds.get(FIRST, answered_question.holds.get(ANSWERED))
        ]
        lines = [f"ended though it holds: {text}" for text in self.ended_texts]
        for answered_question in wrong_answers:
            lines.append(
                f"{answered_question.question.asks} ({answered_question.question.shape}): "
                f"{answered_question.question.text} -> {answered_question.question.answer}"
            )
            lines += [f"    {text.one_line(cue, 120)}" for cue in answered_question.cues]
        return "\n".join(lines) or "none"

    def text(self) -> str:
        """Format the results as tables for people."""
        header = f"{self.half}: {self.figures['n_worlds']} worlds, {self.figures['n_messages']} messages (per cent)"
        parts = [header, *(_format_system(name, system) for name, system in self.figures["systems"].items())]
        return "\n\n".join([*parts, _format_false_endings(self.figures["false"])])


def run(
    half: str = "dev",
    *,
    embedder: Embedder | None = None,
    vectors: bool = True,
    keep: KeepFunction | None = None,
    superseded: SupersededFunction | None = None,
    n_worlds: int | None = None,
    home: Path | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> SupersessionReport:
    """Measure one half, one of HALVES. Raises UsageError for another.

    keep: makes memories of turns, instead of the home's own `keep_stated`; returns whether it did.
    superseded: returns the times at which superseded memories had been stated, instead of asking the home's
    own memories. n_worlds: only so many, spread over the languages. home: a folder for the scratch homes, to
    keep them; without it they are deleted.
    """
    if half not in HALVES:
        raise UsageError(f"half {half!r} (known: {', '.join(HALVES)})")
    chosen_worlds = make_worlds(half)
    if n_worlds:
        chosen_worlds = chosen_worlds[:: max(1, len(chosen_worlds) // n_worlds)][:n_worlds]
    model = embedder or (choose_embedder(EmbedderConfig()).embedder if vectors else None)  # one for all homes
    setup = _SupersessionSetup(model, vectors, keep or keep_stated, superseded or list_superseded_times)
    results = []
    with tempfile.TemporaryDirectory(prefix="perdure-eval-") as scratch:
        for n_done, world in enumerate(chosen_worlds):
            if progress:
                progress(n_done, len(chosen_worlds))
            results.append(_measure_world(world, home or Path(scratch), setup))
    answered_questions = [answered_question for before, after, _ in results for answered_question in after or before]
    ended_texts = [text for _, _, false_endings in results for text in false_endings.examples]
    return SupersessionReport(half, _compute_figures(chosen_worlds, results), answered_questions, ended_texts)


@dataclass(frozen=True, slots=True)
class _SupersessionSetup:
    embedder: Embedder | None
    vectors: bool
    keep: KeepFunction
    superseded: SupersededFunction


def keep_stated(home: Home) -> bool:
    """Let a home keep the statements of its turns."""
    home.memories.keep_stated()
    return True


def list_superseded(home: Home) -> list[Memory]:
    """List the memories of a home that a later one superseded."""
    return [memory for memory in home.memories.list_memories(every=True) if memory.superseded_by is not None]


def list_superseded_times(home: Home) -> list[datetime]:
    """List the times at which superseded memories had been stated."""
    return [memory.stated_at for memory in list_superseded(home)]


def is_history(cue: Cue) -> bool:
    """Return True if a cue is labelled as no longer true."""
    return cue.is_history


def _measure_world(
    world: ChangeWorld, folder: Path, setup: _SupersessionSetup
) -> tuple[list[AnsweredQuestion], list[AnsweredQuestion], FalseEndings]:
    """Return the answers before and after memories are kept, and the memories that were wrongly ended."""
    with _open_world_home(world, folder, setup, stated=False) as home:
        _capture(home, world)
        _update_index(home, setup)
        before = _ask_questions(home, world, setup)
    with _open_world_home(world, folder, setup, stated=setup.keep is keep_stated) as home:
        if not setup.keep(home):
            return before, [], FalseEndings(world.language, 0, 0, 0, 0)
        _update_index(home, setup)
        return before, _ask_questions(home, world, setup), find_false_endings(world, setup.superseded(home))


def _open_world_home(world: ChangeWorld, folder: Path, setup: _SupersessionSetup, *, stated: bool) -> Home:
    """Open the home of a world; `stated` says whether it keeps statements."""
    (folder / "home").mkdir(mode=0o700, parents=True, exist_ok=True)
    (folder / "home" / "config.toml").write_text(f"[memories]\nstated = {str(stated).lower()}\n")
    return open_home(folder / "home", user=world.name.replace("_", "-"), embedder=setup.embedder)


def _capture(home: Home, world: ChangeWorld) -> None:
    """Capture every message as a turn that a person typed, one session for each month."""
    messages_by_session: dict[str, list[ChangeMessage]] = {}
    for message in world.messages:
        messages_by_session.setdefault(f"{world.name}-{message.stated_at:%Y-%m}", []).append(message)
    for session, messages in messages_by_session.items():
        lines = [
            {"role": "user", "content": message.text, "timestamp": message.stated_at.isoformat()}
            for message in messages
        ]
        body = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
        home.capture(body.encode(), runtime="messages", session=session)


def _update_index(home: Home, setup: _SupersessionSetup) -> None:
    home.upkeep.catch_up()
    if setup.vectors:
        home.upkeep.embed()


def _ask_questions(home: Home, world: ChangeWorld, setup: _SupersessionSetup) -> list[AnsweredQuestion]:
    now = world.messages[-1].stated_at + timedelta(days=1)
    mode = "hybrid" if setup.vectors else "keyword"
    answered_questions = []
    for question in world.questions:
        cues = home.recall(question.text, now=now, all_projects=True, mode=mode).cues
        holds = measure_cues([ShownCue(cue.text, is_history(cue)) for cue in cues], question)
        answered_questions.append(AnsweredQuestion(question, holds, tuple(cue.text for cue in cues)))
    return answered_questions


def measure_cues(cues: Sequence[ShownCue], question: ChangeQuestion) -> dict[str, float]:
    """Measure the cues of one question; each measure is 1 or 0. The measures depend on what the question asks.

    >>> ask = ChangeQuestion("q", "now", "which port?", "port", "change", "en", "8443", ("8080",), ())
    >>> measure_cues([ShownCue("it is 8443, not 8080"), ShownCue("it is 8080")], ask)
    {'current first': 1.0, 'current found': 1.0, 'misled': 0.0, 'silent': 0.0}
    """
    silent = {SILENT: float(not cues)}
    if question.asks in HISTORY:
        right_ranks = [n for n, cue in enumerate(cues) if has_value(question.answer, cue.text)]
        wrong_ranks = [
            n for n, cue in enumerate(cues) if n not in right_ranks and _has_any_value(question.others, cue.text)
        ]
        return {
            ANSWERED: float(bool(right_ranks)),
            ANSWERED_FIRST: float(_is_leading(right_ranks, wrong_ranks)),
            **silent,
        }
    right_ranks = [n for n, cue in enumerate(cues) if not cue.is_history and has_value(question.answer, cue.text)]
    old_ranks = [
        n
        for n, cue in enumerate(cues)
        if n not in right_ranks and _has_any_value((question.answer, *question.others), cue.text)
    ]
    return {
        FIRST: float(_is_leading(right_ranks, old_ranks)),
        FOUND: float(bool(right_ranks)),
        MISLED: float(bool(old_ranks) and not right_ranks),
        **silent,
    }


def _is_leading(right_ranks: Sequence[int], wrong_ranks: Sequence[int]) -> bool:
    return bool(right_ranks) and (not wrong_ranks or right_ranks[0] < wrong_ranks[0])


def has_value(value: str, text: str) -> bool:
    """Return True if a value is in a text, not as a part of a longer word or number; case does not count.

    >>> has_value("3.1", "python 3.12"), has_value("Zed", "i use zed."), has_value("8443", "端口是8443了")
    (False, True, True)
    """
    return bool(_compile_value(value.casefold()).search(text.casefold()))


@cache
def _compile_value(value: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![a-z0-9]){re.escape(value)}(?![a-z0-9]|\.\d)")


def _has_any_value(values: Iterable[str], text: str) -> bool:
    return any(has_value(value, text) for value in values)


def find_false_endings(world: ChangeWorld, superseded: Iterable[datetime]) -> FalseEndings:
    """Find what was wrongly ended: controls, and the last statement of each fact.

    superseded: when the superseded memories had been stated; no two messages of a world have the same time.
    """
    ended_times = set(superseded)
    ended_ids = {message.message_id for message in world.messages if message.stated_at in ended_times}
    ended_controls = [ended_ids.intersection(control.statements) for control in world.controls]
    current = ended_ids.intersection(world.current)
    wrong_ids = current.union(*ended_controls)
    examples = tuple(message.text for message in world.messages if message.message_id in wrong_ids)
    n_controls = sum(map(bool, ended_controls))
    return FalseEndings(world.language, len(ended_controls), n_controls, len(world.current), len(current), examples)


def _compute_figures(
    chosen_worlds: Sequence[ChangeWorld],
    results: Sequence[tuple[list[AnsweredQuestion], list[AnsweredQuestion], FalseEndings]],
) -> dict[str, Any]:
    before = [answered_question for group, _, _ in results for answered_question in group]
    after = [answered_question for _, group, _ in results for answered_question in group]
    systems = {"before (turns)": _measure_system(before)}
    if after:
        systems["after (memories)"] = _measure_system(after)
    return {
        "n_worlds": len(chosen_worlds),
        "n_messages": sum(len(world.messages) for world in chosen_worlds),
        "systems": systems,
        "false": _measure_false_endings([false_endings for _, _, false_endings in results]),
    }


def _measure_system(answered_questions: Sequence[AnsweredQuestion]) -> dict[str, Any]:
    """Compute rows by what is asked, with intervals; for the present and for history also by shape, kind and
    language.
    """
    rows = {
        asks: _measure_row(
            [answered_question for answered_question in answered_questions if answered_question.question.asks == asks],
            with_interval=True,
        )
        for asks in NOW + HISTORY
    }
    tables: dict[str, Any] = {"asked": {asks: row for asks, row in rows.items() if row}}
    for part in ("shape", "kind", "language"):
        for asks, group in (("now", ("now",)), ("history", HISTORY)):
            chosen = [
                answered_question
                for answered_question in answered_questions
                if answered_question.question.asks in group
            ]
            names = sorted({str(getattr(answered_question.question, part)) for answered_question in chosen})
            tables[f"{asks} by {part}"] = {
                name: _measure_row(
                    [
                        answered_question
                        for answered_question in chosen
                        if getattr(answered_question.question, part) == name
                    ]
                )
                for name in names
            }
    return tables


def _measure_row(answered_questions: Sequence[AnsweredQuestion], *, with_interval: bool = False) -> dict[str, Any]:
    if not answered_questions:
        return {}
    row: dict[str, Any] = {
        "n": len(answered_questions),
        **measures.mean([answered_question.holds for answered_question in answered_questions]),
    }
    if with_interval:
        row["interval"] = {
            name: asdict(
                measures.bootstrap([answered_question.holds[name] for answered_question in answered_questions])
            )
            for name in answered_questions[0].holds
        }
    return row


def _measure_false_endings(all_endings: Sequence[FalseEndings]) -> dict[str, Any]:
    """Compute the shares of wrongly ended memories; without memories there is nothing to count."""
    if not any(endings.n_controls for endings in all_endings):
        return {}
    controls = [float(n < endings.n_ended_controls) for endings in all_endings for n in range(endings.n_controls)]
    current = [float(n < endings.n_ended_current) for endings in all_endings for n in range(endings.n_current)]
    return {
        "controls": {"n": len(controls), **asdict(measures.bootstrap(controls))},
        "current": {"n": len(current), **asdict(measures.bootstrap(current))},
        "by language": {
            language: sum(endings.n_ended_controls for endings in all_endings if endings.language == language)
            for language in sorted({endings.language for endings in all_endings})
        },
    }


def _format_system(name: str, system: Mapping[str, Mapping[str, FigureRow]]) -> str:
    return "\n".join([name, *(line for part, rows in system.items() for line in _format_table(part, rows))])


def _format_table(part: str, rows: Mapping[str, FigureRow]) -> list[str]:
    """Format a table; a measure that no row has gets no column."""
    names = list(dict.fromkeys(name for row in rows.values() for name in row if name not in ("n", "interval")))
    lines = [f"  {part:22}{'n':>5}" + "".join(name.rjust(22) for name in names)]
    for label, row in rows.items():
        cells = "".join(_format_cell(row, name).rjust(22) for name in names)
        lines.append(f"  {label:22}{row['n']:5d}{cells}")
    return lines


def _format_cell(row: FigureRow, name: str) -> str:
    if name not in row:
        return "–"
    mean_text = f"{100 * row[name]:.1f}"
    interval = row.get("interval", {}).get(name)
    return f"{mean_text} [{100 * interval['low']:.1f}, {100 * interval['high']:.1f}]" if interval else mean_text


def _format_false_endings(figures: Mapping[str, Any]) -> str:
    if not figures:
        return "no memories were kept: nothing could be ended"
    return "\n".join(
        f"ended though it holds, {name}: {100 * figures[name]['at']:.1f} "
        f"[{100 * figures[name]['low']:.1f}, {100 * figures[name]['high']:.1f}] of {figures[name]['n']}"
        for name in ("controls", "current")
    )
