"""The blocks that were recorded in shadow, as a person answers them: message and block side by side.

Reads from the home as `why` does: the journal has ids and numbers, the words are those that are stored now.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from perdure.access.redact import mask
from perdure.archive.memory_events import RIGHT, WRONG
from perdure.config import LimitsConfig
from perdure.errors import PerdureError, RecallMissing, UsageError
from perdure.home import Home
from perdure.index.injections import ShadowBlock
from perdure.index.session_turns import PromptTurn
from perdure.recall.judge import ENOUGH_COVERAGE, MIN_ANSWERS, AnsweredBlock, FittedLimits, fit_limits, get_threshold
from perdure.recall.pack import render_cue
from perdure.surfaces import recall_sources

LABELS = {"yes": RIGHT, "no": WRONG, "": ""}  # answer -> label


@dataclass(frozen=True, slots=True)
class ReviewedBlock:
    """A message, and the block that it would have got."""

    block: ShadowBlock
    message: str  # masked; "" if it is not captured
    project: str | None
    texts: tuple[str, ...]  # masked, one for each cue as a model would read it; without those forgotten since

    @property
    def nonce(self) -> str:
        """The id of the block."""
        return self.block.injection.nonce

    @property
    def at(self) -> datetime:
        """The time of the message."""
        return self.block.injection.at

    @property
    def answer(self) -> str:
        """The person's answer: "yes", "no" or ""."""
        return next(answer for answer, label in LABELS.items() if label == self.block.label)

    def to_json(self) -> dict[str, Any]:
        """Return the block as `perdure review --json` prints it."""
        injection, judged = self.block.injection, self.block.judged
        numbers = {name: judged.get(name) for name in ("relevance", "threshold", "coverage", "spoke_by", "judged_for")}
        return {
            "id": self.nonce,
            "at": self.at,
            "runtime": injection.runtime,
            "session": injection.session,
            "project": self.project,
            "message": self.message or None,
            "block": list(self.texts),
            "answer": self.answer or None,
            **numbers,
        }


def read_blocks(home: Home, blocks: Sequence[ShadowBlock]) -> list[ReviewedBlock]:
    """Return these blocks with their messages and their words as they are now."""
    with contextlib.suppress(PerdureError):  # then messages may be missing
        home.upkeep.index_all()
    prompts = recall_sources.find_messages(home, [recall_sources.to_moment(block.injection) for block in blocks])
    return [_read_block(home, block, prompts.get(recall_sources.to_moment(block.injection))) for block in blocks]


def _read_block(home: Home, block: ShadowBlock, prompt: PromptTurn | None) -> ReviewedBlock:
    message = recall_sources.read_message(home, prompt.turn_id) if prompt else recall_sources.PromptMessage()
    view = recall_sources.read_injection(home, block.injection, message.text)
    texts = tuple(mask(render_cue(cue)) for cue in view.injected_cues)
    return ReviewedBlock(block, message.text, message.project, texts)


def find_block(blocks: Sequence[ShadowBlock], identifier: str) -> ShadowBlock:
    """Return the block whose id begins so. Raises RecallMissing, and UsageError for the beginning of several."""
    matches = [block for block in blocks if block.injection.nonce.startswith(identifier)]
    if not matches:
        raise RecallMissing(f"nothing was recorded in shadow as {identifier}")
    if len(matches) > 1:
        raise UsageError(f"{len(matches)} recorded blocks begin with {identifier}: give more of the id")
    return matches[0]


# a home's own limits --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SpeakingPlan:
    """What changes when recall speaks after a review."""

    fits: Mapping[str, FittedLimits]  # by model, or "words"
    n_few: Mapping[str, int]  # model -> answers, too few of them to change its limits

    def list_changes(self) -> dict[tuple[str, ...], dict[str, bool | float | None]]:
        """Return the values to set, by table of config.toml. Limits as they are built in are not written."""
        changes: dict[tuple[str, ...], dict[str, bool | float | None]] = {("live",): {"shadow": False}}
        for model, fit in self.fits.items():
            is_built_in = fit.limits == LimitsConfig(get_threshold(model), ENOUGH_COVERAGE)
            values: dict[str, bool | float | None] = (
                {"relevance": None, "coverage": None} if is_built_in else fit.limits._asdict()
            )
            changes["live", "limits", model] = values
        return changes

    def describe(self) -> list[str]:
        """Return one line for each model."""
        fitted = [
            f"{model}: from relevance {fit.limits.relevance:.2f} on (built in: {get_threshold(model):.2f}), or with "
            f"{fit.limits.coverage:.0%} of the message's words in one text (built in: {ENOUGH_COVERAGE:.0%}). Of your "
            f"answers, {fit.n_wanted_told} of {fit.n_wanted} wanted and {fit.n_unwanted_told} of {fit.n_unwanted} "
            "unwanted blocks are told."
            for model, fit in self.fits.items()
        ]
        few = [f"{model}: limits unchanged, {n} of {MIN_ANSWERS} answers." for model, n in self.n_few.items()]
        return [*fitted, *few]


def plan_speaking(blocks: Sequence[ShadowBlock]) -> SpeakingPlan:
    """Return the limits that the answers ask for; blocks of which only a time was asked do not count."""
    answers = [
        AnsweredBlock(judged["judged_for"], judged["relevance"], judged["coverage"], block.label == RIGHT)
        for block in blocks
        for judged in [block.judged]
        if block.label and judged.get("judged_for") and "relevance" in judged and "coverage" in judged
    ]
    fits = fit_limits(answers)
    counts = Counter(answer.judged_for for answer in answers)
    return SpeakingPlan(fits, {model: n for model, n in sorted(counts.items()) if model not in fits})
