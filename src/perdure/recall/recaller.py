"""The socket of M(I): a recaller turns a plan and candidates into cues, or into silence.

`perdure.recall.recall.recall` is the one that ships; `perdure.open(recaller=…)` takes another. Whatever it does, it
reads through the candidates, which hold nothing that the principal may not read, and writes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import Protocol, TypeAlias

from msgspec import Struct

from perdure.access.scan import Finding
from perdure.config import LimitsConfig
from perdure.recall.candidates import CandidateSource
from perdure.recall.rank import PlanVectors
from perdure.recall.tuning import DEFAULT, Tuning
from perdure.types import Plan, Recalled

TextScan: TypeAlias = "Callable[[str], Sequence[Finding]]"  # findings in a text that nobody allowed
ChangeNote: TypeAlias = (
    "Callable[[str, str | None, datetime | None], str]"  # words, project, time -> what changed since
)


class RecallContext(Struct, frozen=True):
    """What a home knows beside the plan and the candidates of a recall."""

    vectors: PlanVectors = None  # a row for each of `list_texts_to_embed(plan)`, or a function that waits for them
    model: str = ""  # the name of the model that made them, as `judge.THRESHOLDS` knows it
    session_turn_ids: Collection[str] = ()  # what the session holds, and is not told again
    explain: bool = False  # say for every other candidate why it is no cue
    scan_text: TextScan | None = None  # finds text that reads like an order to a model, which no cue may hold
    describe_changes: ChangeNote | None = None  # says what has changed since a memory was stated
    limits: Mapping[str, LimitsConfig] | None = None  # a home's own, below which recall is silent, by model
    tuning: Tuning = DEFAULT


NO_CONTEXT = RecallContext()


class Recaller(Protocol):
    """One way to recall. `perdure.testing.check_recaller` tries what every one must keep to."""

    def __call__(self, candidates: CandidateSource, plan: Plan, context: RecallContext = ..., /) -> Recalled:
        """Return the cues for a plan, best first, within `context.tuning.max_tokens`; or none, with the reason."""
