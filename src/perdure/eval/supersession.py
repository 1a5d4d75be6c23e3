"""What a memory answers of facts that changed: by turns alone, and by the memories that are kept of what was stated.

Each world of `perdure.eval.changes` is one owner in a scratch home, every message a turn that a person typed. The same
questions are asked twice, before the home keeps what was stated and after. A cue is judged by the values in its text
alone, so that turns and memories count alike; one that is labelled as history tells what was, whatever else it says.
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

from perdure import text as words
from perdure.config import EmbedderConfig
from perdure.errors import UsageError
from perdure.eval import measures
from perdure.eval.changes.generate import HALVES, Message, Question, World, worlds
from perdure.home import Home, open_home
from perdure.models.choose import choose
from perdure.models.embedder import Embedder
from perdure.types import Cue, Memory

NOW = ("now", "control")  # what is true
HISTORY = ("before", "then")  # what was
FIRST, FOUND, MISLED = "current first", "current found", "misled"
ANSWERED, ANSWERED_FIRST = "answered", "answered first"
SILENT = "silent"
Keep = Callable[[Home], bool]
Superseded = Callable[[Home], Iterable[datetime]]
Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Shown:
    """A cue as it is judged."""

    text: str
    is_history: bool = False  # labelled as what no longer holds


@dataclass(frozen=True, slots=True)
class Asked:
    """A question and what holds of its cues, each 1 or 0."""

    question: Question
    holds: Mapping[str, float]
    cues: tuple[str, ...] = ()  # their texts


@dataclass(frozen=True, slots=True)
class Broken:
    """What was ended in one world that should not have been."""

    language: str
    n_controls: int
    controls: int  # things that are not the same, or both true, of which one ended
    n_current: int
    current: int  # facts whose last statement ended
    examples: tuple[str, ...] = ()  # what was ended though it holds


@dataclass(frozen=True, slots=True)
class Report:
    """What was measured on one half."""

    half: str
    figures: Mapping[str, Any]  # plain values, for JSON
    asked: Sequence[Asked] = ()  # after memories were kept, where they were
    ended: Sequence[str] = ()  # messages whose memory was ended though it holds

    def errors(self) -> str:
        """What was answered wrongly and ended wrongly, of the half that may be looked at."""
        if self.half != "dev":
            return "of this half only figures are shown"
        lost = [one for one in self.asked if not one.holds.get(FIRST, one.holds.get(ANSWERED))]
        lines = [f"ended though it holds: {text}" for text in self.ended]
        for one in lost:
            lines.append(f"{one.question.asks} ({one.question.shape}): {one.question.text} -> {one.question.answer}")
            lines += [f"    {words.one_line(cue, 120)}" for cue in one.cues]
        return "\n".join(lines) or "none"

    def text(self) -> str:
        """The tables as a person reads them."""
        head = f"{self.half}: {self.figures['n_worlds']} worlds, {self.figures['n_messages']} messages (per cent)"
        parts = [head, *(_tables(name, system) for name, system in self.figures["systems"].items())]
        return "\n\n".join([*parts, _false_lines(self.figures["false"])])


def run(
    half: str = "dev",
    *,
    embedder: Embedder | None = None,
    vectors: bool = True,
    keep: Keep | None = None,
    superseded: Superseded | None = None,
    n_worlds: int | None = None,
    home: Path | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Report:
    """Measure one half, "dev" or "held_out". Raises UsageError for another.

    keep: what makes memories of turns, instead of the home's own `keep_stated`; returns whether it did. superseded:
    when what was ended had been stated, instead of asking the home's own memories. n_worlds: only so many, spread over
    the languages. home: where the scratch homes stay; else they go.
    """
    if half not in HALVES:
        raise UsageError(f"half {half!r} (known: {', '.join(HALVES)})")
    found = _some(worlds(half), n_worlds)
    model = embedder or (choose(EmbedderConfig()).embedder if vectors else None)  # one for all homes
    setup = _Setup(model, vectors, keep or keep_stated, superseded or ended_at)
    results = []
    with tempfile.TemporaryDirectory(prefix="perdure-eval-") as scratch:
        for n_done, world in enumerate(found):
            if progress:
                progress(n_done, len(found))
            results.append(_measure(world, home or Path(scratch), setup))
    asked = [one for before, after, _ in results for one in after or before]
    wrongly = [text for _, _, broken in results for text in broken.examples]
    return Report(half, _figures(found, results), asked, wrongly)


@dataclass(frozen=True, slots=True)
class _Setup:
    embedder: Embedder | None
    vectors: bool
    keep: Keep
    superseded: Superseded


def keep_stated(home: Home) -> bool:
    """Let a home keep what was stated in its turns."""
    home.keep_stated()
    return True


def ended(home: Home) -> list[Memory]:
    """The memories of a home that a later one superseded."""
    return [memory for memory in home.memories.listed(every=True) if memory.superseded_by is not None]


def ended_at(home: Home) -> list[datetime]:
    """When what was superseded had been stated."""
    return [memory.stated_at for memory in ended(home)]


def is_history(cue: Cue) -> bool:
    """Whether a cue is labelled as what no longer holds."""
    return cue.is_history


def _some(found: Sequence[World], n_worlds: int | None) -> Sequence[World]:
    return found[:: max(1, len(found) // n_worlds)][:n_worlds] if n_worlds else found


def _measure(world: World, place: Path, setup: _Setup) -> tuple[list[Asked], list[Asked], Broken]:
    """The answers before and after memories are kept, and what they ended that holds."""
    with _opened(world, place, setup, stated=False) as home:
        _capture(home, world)
        _bring_up(home, setup)
        before = _ask_all(home, world, setup)
    with _opened(world, place, setup, stated=setup.keep is keep_stated) as home:
        if not setup.keep(home):
            return before, [], Broken(world.language, 0, 0, 0, 0)
        _bring_up(home, setup)
        return before, _ask_all(home, world, setup), broken(world, setup.superseded(home))


def _opened(world: World, place: Path, setup: _Setup, *, stated: bool) -> Home:
    """The home of a world, keeping what is stated in it or not."""
    (place / "home").mkdir(mode=0o700, parents=True, exist_ok=True)
    (place / "home" / "config.toml").write_text(f"[memories]\nstated = {str(stated).lower()}\n")
    return open_home(place / "home", user=world.name.replace("_", "-"), embedder=setup.embedder)


def _capture(home: Home, world: World) -> None:
    """Every message as a turn that a person typed, a session for each month."""
    months: dict[str, list[Message]] = {}
    for message in world.messages:
        months.setdefault(f"{world.name}-{message.stated_at:%Y-%m}", []).append(message)
    for session, said in months.items():
        lines = [
            {"role": "user", "content": message.text, "timestamp": message.stated_at.isoformat()} for message in said
        ]
        body = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
        home.capture(body.encode(), runtime="messages", session=session)


def _bring_up(home: Home, setup: _Setup) -> None:
    home.catch_up()
    if setup.vectors:
        home.embed()


def _ask_all(home: Home, world: World, setup: _Setup) -> list[Asked]:
    now = world.messages[-1].stated_at + timedelta(days=1)
    mode = "hybrid" if setup.vectors else "keyword"
    found = []
    for question in world.questions:
        cues = home.recall(question.text, now=now, all_projects=True, mode=mode).cues
        holds = measured([Shown(cue.text, is_history(cue)) for cue in cues], question)
        found.append(Asked(question, holds, tuple(cue.text for cue in cues)))
    return found


def measured(cues: Sequence[Shown], question: Question) -> dict[str, float]:
    """Whether each thing holds of the cues for one question, 1 or 0; which things depends on what it asks.

    >>> ask = Question("q", "now", "which port?", "port", "change", "en", "8443", ("8080",), ())
    >>> measured([Shown("it is 8443, not 8080"), Shown("it is 8080")], ask)
    {'current first': 1.0, 'current found': 1.0, 'misled': 0.0, 'silent': 0.0}
    """
    silent = {SILENT: float(not cues)}
    if question.asks in HISTORY:
        right = [n for n, cue in enumerate(cues) if tells(question.answer, cue.text)]
        wrong = [n for n, cue in enumerate(cues) if n not in right and _tells_any(question.others, cue.text)]
        return {ANSWERED: float(bool(right)), ANSWERED_FIRST: float(_leads(right, wrong)), **silent}
    right = [n for n, cue in enumerate(cues) if not cue.is_history and tells(question.answer, cue.text)]
    old = [
        n for n, cue in enumerate(cues) if n not in right and _tells_any((question.answer, *question.others), cue.text)
    ]
    return {
        FIRST: float(_leads(right, old)), FOUND: float(bool(right)), MISLED: float(bool(old) and not right), **silent,
    }  # fmt: skip


def _leads(right: Sequence[int], wrong: Sequence[int]) -> bool:
    return bool(right) and (not wrong or right[0] < wrong[0])


def tells(value: str, text: str) -> bool:
    """Whether a value stands in a text, not as a part of a longer word or number; case does not count.

    >>> tells("3.1", "python 3.12"), tells("Zed", "i use zed."), tells("8443", "端口是8443了")
    (False, True, True)
    """
    return bool(_bounded(value.casefold()).search(text.casefold()))


@cache
def _bounded(value: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![a-z0-9]){re.escape(value)}(?![a-z0-9]|\.\d)")


def _tells_any(values: Iterable[str], text: str) -> bool:
    return any(tells(value, text) for value in values)


def broken(world: World, superseded: Iterable[datetime]) -> Broken:
    """What was ended that holds: the controls, and the last statement of each fact.

    superseded: when it had been stated; no two messages of a world were said at the same time.
    """
    gone = set(superseded)
    names = {message.message_id for message in world.messages if message.stated_at in gone}
    controls = [names.intersection(control.statements) for control in world.controls]
    current = names.intersection(world.current)
    wrong = current.union(*controls)
    examples = tuple(message.text for message in world.messages if message.message_id in wrong)
    n_controls = sum(map(bool, controls))
    return Broken(world.language, len(controls), n_controls, len(world.current), len(current), examples)


def _figures(found: Sequence[World], results: Sequence[tuple[list[Asked], list[Asked], Broken]]) -> dict[str, Any]:
    before = [asked for one, _, _ in results for asked in one]
    after = [asked for _, two, _ in results for asked in two]
    systems = {"before (turns)": _system(before)}
    if after:
        systems["after (memories)"] = _system(after)
    return {
        "n_worlds": len(found),
        "n_messages": sum(len(world.messages) for world in found),
        "systems": systems,
        "false": _false([broken for _, _, broken in results]),
    }


def _system(asked: Sequence[Asked]) -> dict[str, Any]:
    """Rows by what is asked, with intervals; for what is true now also by shape, kind and language."""
    rows = {asks: _row([a for a in asked if a.question.asks == asks], with_interval=True) for asks in NOW + HISTORY}
    found: dict[str, Any] = {"asked": {asks: row for asks, row in rows.items() if row}}
    for part in ("shape", "kind", "language"):
        for asks, group in (("now", ("now",)), ("history", HISTORY)):
            chosen = [a for a in asked if a.question.asks in group]
            names = sorted({str(getattr(a.question, part)) for a in chosen})
            found[f"{asks} by {part}"] = {
                name: _row([a for a in chosen if getattr(a.question, part) == name]) for name in names
            }
    return found


def _row(asked: Sequence[Asked], *, with_interval: bool = False) -> dict[str, Any]:
    if not asked:
        return {}
    row: dict[str, Any] = {"n": len(asked), **measures.mean([a.holds for a in asked])}
    if with_interval:
        row["interval"] = {
            name: asdict(measures.bootstrap([a.holds[name] for a in asked])) for name in asked[0].holds
        }  # fmt: skip
    return row


def _false(found: Sequence[Broken]) -> dict[str, Any]:
    """Shares of what was ended though it holds; without memories there is nothing to count."""
    if not any(one.n_controls for one in found):
        return {}
    controls = [float(n < one.controls) for one in found for n in range(one.n_controls)]
    current = [float(n < one.current) for one in found for n in range(one.n_current)]
    return {
        "controls": {"n": len(controls), **asdict(measures.bootstrap(controls))},
        "current": {"n": len(current), **asdict(measures.bootstrap(current))},
        "by language": {
            language: sum(one.controls for one in found if one.language == language)
            for language in sorted({one.language for one in found})
        },
    }


def _tables(name: str, system: Mapping[str, Mapping[str, Row]]) -> str:
    return "\n".join([name, *(line for part, rows in system.items() for line in _table(part, rows))])


def _table(part: str, rows: Mapping[str, Row]) -> list[str]:
    """A table; a measure that no row has is no column."""
    names = list(dict.fromkeys(name for row in rows.values() for name in row if name not in ("n", "interval")))
    lines = [f"  {part:22}{'n':>5}" + "".join(name.rjust(22) for name in names)]
    for label, row in rows.items():
        cells = "".join(_cell(row, name).rjust(22) for name in names)
        lines.append(f"  {label:22}{row['n']:5d}{cells}")
    return lines


def _cell(row: Row, name: str) -> str:
    if name not in row:
        return "–"
    at = f"{100 * row[name]:.1f}"
    interval = row.get("interval", {}).get(name)
    return f"{at} [{100 * interval['low']:.1f}, {100 * interval['high']:.1f}]" if interval else at


def _false_lines(false: Mapping[str, Any]) -> str:
    if not false:
        return "no memories were kept: nothing could be ended"
    return "\n".join(
        f"ended though it holds, {name}: {100 * false[name]['at']:.1f} "
        f"[{100 * false[name]['low']:.1f}, {100 * false[name]['high']:.1f}] of {false[name]['n']}"
        for name in ("controls", "current")
    )
