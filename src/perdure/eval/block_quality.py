"""The evaluation of the block: what stands in the text that a model reads, beside other ways to fill it.

Every way (`block_ways`) fills its block from the same home; the answer (`block_sets`) is also looked for in the first
400 and 800 tokens, so that ways are compared at equal length, and with what as many tokens of random turns hold by
chance.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from perdure import text
from perdure.errors import UsageError
from perdure.eval import measures
from perdure.eval.block_sets import (
    Block,
    BlockQuestion,
    BlockSet,
    answers,
    find_half,
    find_policy_words,
    list_scopes,
    open_set,
)
from perdure.eval.block_ways import WAYS, Ways

CUTS = (400, 800)  # tokens of the block in which the answer is looked for
Progress: TypeAlias = "Callable[[int, int], None]"
_Blocks: TypeAlias = "dict[str, dict[str, list[Block]]]"  # scope -> way -> the block for each question


@dataclass(frozen=True, slots=True)
class BlockReport:
    """The results on one set."""

    name: str
    figures: Mapping[str, Any]  # plain values, for JSON
    blocks: Mapping[str, Sequence[Block]] = field(default_factory=dict)  # way -> its blocks

    def text(self) -> str:
        """Format the results as tables for people."""
        parts = [
            f"{self.name}: {self.figures['n_answerable']} questions, {self.figures['n_silence']} without an answer"
        ]
        for scope, rows in self.figures["scopes"].items():
            parts.append(_format_rows(scope, rows))
        return "\n\n".join(parts)

    def errors(self) -> str:
        """List the questions whose answer recall did not tell, and those that deserved silence and got a block."""
        lines = []
        for scope, blocks in self.blocks.items():
            for block in blocks:
                if block.question.deserves_silence and block.items:
                    lines.append(f"{scope}: not silent: {block.question.text}")
                elif not block.question.deserves_silence and block.find_answer() != 1:
                    position = block.find_answer()
                    lines.append(f"{scope}: {f'answer at {position}' if position else 'missed'}: {block.question.text}")
                else:
                    continue
                lines += [f"    {text.one_line(item.text, 120)}" for item in block.items]
        return "\n".join(lines) or "none"


def run(
    sources: Sequence[Path],
    *,
    half: str | None = None,
    vectors: bool = True,
    home: Path | None = None,
    progress: Progress | None = None,
) -> BlockReport:
    """Measure one set: a folder with docs.jsonl and queries.jsonl, or a file of questions and the transcripts.

    half: only the questions of this half, "dev" or "held_out", which their words decide. home: a scratch home to
    keep and use again. progress gets (questions asked, all questions). Raises UsageError if a file of questions has
    no transcripts.
    """
    with tempfile.TemporaryDirectory(prefix="perdure-eval-") as scratch:
        folder = home or Path(scratch)
        with open_set(sources, folder, vectors=vectors) as block_set:
            chosen = [question for question in block_set.questions if half in (None, find_half(question.text))]
            if not chosen:
                raise UsageError(f"{sources[0]} has no question of this half")
            blocks = _ask_all(block_set, chosen, progress)
    figures = {
        "n_answerable": sum(not question.deserves_silence for question in chosen),
        "n_silence": sum(question.deserves_silence for question in chosen),
        "scopes": {
            scope: {way: measure_blocks(way_blocks) for way, way_blocks in blocks_by_way.items()}
            for scope, blocks_by_way in blocks.items()
        },
    }
    return BlockReport(
        sources[0].stem, figures, {scope: blocks_by_way["recall"] for scope, blocks_by_way in blocks.items()}
    )


def _ask_all(block_set: BlockSet, questions: Sequence[BlockQuestion], progress: Progress | None) -> _Blocks:
    """Return scope -> way -> the block for each question, in their order."""
    ways = {user: Ways(home, block_set.asked_at.get(user)) for user, home in block_set.homes.items()}
    scopes = list_scopes(questions)
    blocks: _Blocks = {scope: {way: [] for way in WAYS} for scope in scopes}
    for n_asked, question in enumerate(questions):
        if progress:
            progress(n_asked, len(questions))
        for scope, is_everywhere in scopes.items():
            for way, ask in WAYS.items():
                blocks[scope][way].append(ask(ways[question.user], question, is_everywhere))
    return blocks


def measure_blocks(blocks: Sequence[Block]) -> dict[str, Any]:
    """Return the figures of one way: shares of questions, and means over blocks."""
    answerable = [block for block in blocks if not block.question.deserves_silence]
    silence = [block for block in blocks if block.question.deserves_silence]
    positions = [block.find_answer() for block in answerable]
    figures: dict[str, Any] = {
        "told": _estimate([position is not None for position in positions]),
        "first": _estimate([position == 1 for position in positions]),
        "among three": _estimate([position is not None and position <= 3 for position in positions]),
        **{f"told in {cut}": _estimate([block.find_answer(cut) is not None for block in answerable]) for cut in CUTS},
        "false silence": _mean([not block.items for block in answerable]),
        "silent": _estimate([not block.items for block in silence]),
        "cues": _mean([len(block.items) for block in answerable]),
        "unhelpful": _mean([sum(not answers(block.question, item) for item in block.items) for block in answerable]),
        "tokens": _mean([block.n_tokens for block in answerable]),
        "p50 ms": sorted(block.took_ms for block in blocks)[len(blocks) // 2],
    }
    if any(block.question.words for block in answerable):
        figures["words told"] = _estimate([_share_words(block) for block in answerable if block.question.words])
    if orders := [order for block in blocks if (order := block.order_rules())]:
        figures["rules"] = dict(sorted(Counter(orders).items()))
        figures["old first"] = _estimate([order.startswith("old") for order in orders])
        figures["both told"] = _estimate([order.endswith("first") for order in orders])
    if any(block.question.wrong for block in blocks):
        figures["wrong told"] = _estimate([block.tells_wrong() for block in blocks if block.question.wrong])
    return figures


def _share_words(block: Block) -> float:
    told = find_policy_words(" ".join(item.text for item in block.items))
    return len(block.question.words & told) / len(block.question.words)


def _estimate(values: Sequence[float]) -> dict[str, float] | None:
    return asdict(measures.bootstrap([float(value) for value in values])) if values else None


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


_SHARES = ("told", "first", "among three", *(f"told in {cut}" for cut in CUTS), "silent", "words told")
_MEANS = ("cues", "unhelpful", "tokens", "p50 ms")


def _format_rows(scope: str, rows: Mapping[str, Mapping[str, Any]]) -> str:
    """Format the ways as rows: shares in per cent, for recall with their interval of 95 %."""
    shares = [name for name in _SHARES if any(row.get(name) for row in rows.values())]
    width = max(map(len, (scope, *rows))) + 2
    lines = [scope.ljust(width) + "".join(name.rjust(max(9, len(name) + 2)) for name in (*shares, *_MEANS))]
    for way, row in rows.items():
        cells = [
            (f"{100 * row[name]['at']:.1f}" if row.get(name) else "–").rjust(max(9, len(name) + 2)) for name in shares
        ]
        cells += [f"{row[name]:.1f}".rjust(max(9, len(name) + 2)) for name in _MEANS]
        lines.append(way.ljust(width) + "".join(cells))
    told = rows["recall"]
    intervals = [
        f"{name} [{100 * told[name]['low']:.1f}, {100 * told[name]['high']:.1f}]" for name in shares if told.get(name)
    ]
    lines.append(
        f"recall, 95 % of resamples: {', '.join(intervals)}; falsely silent {100 * told['false silence']:.1f} %"
    )
    for way, row in rows.items():
        if "rules" in row:
            lines.append(f"{way}, rule that changed: {', '.join(f'{order} {n}' for order, n in row['rules'].items())}")
    return "\n".join(lines)
