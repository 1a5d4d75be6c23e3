"""Recall in another way: from name to name, as through a graph, instead of by words and meaning.

    pip install perdure
    python examples/own_recall.py "What was wrong with TIDE-4711?"

The turns that hold a name of the message are the first step, the turns that hold the names in those are the second. A
turn counts by the rarity of the names that lead to it, a second step for half. A message without names gets silence.
"""

import sys
from collections import Counter
from collections.abc import Iterable

import perdure
from perdure import text
from perdure.recall.candidates import CandidateSource
from perdure.recall.recall import tell
from perdure.recall.recaller import NO_CONTEXT, RecallContext
from perdure.types import Plan, Recalled

N_CUES = 6


def recall_by_names(candidates: CandidateSource, plan: Plan, context: RecallContext = NO_CONTEXT) -> Recalled:
    """Return the turns that names lead to in one or two steps, best first."""
    scores = score_turns(candidates, plan.names, 1.0)
    details = candidates.get_details(list(scores))
    further_names = {name for detail in details.values() for name in text.entities(detail.text)} - {*plan.names}
    for turn_id, score in score_turns(candidates, further_names, 0.5).items():
        scores[turn_id] += score
    if not scores:
        return Recalled((), plan, silent="no name of the message occurs here")
    return tell(candidates, plan, dict(scores.most_common(N_CUES)), context)


def score_turns(candidates: CandidateSource, names: Iterable[str], weight: float) -> Counter[str]:
    """Return for each turn the sum of the rarities of the names in it."""
    scores = Counter[str]()
    for sighting in candidates.find_names(sorted(names)).values():
        for turn_id in sighting.newest:
            scores[turn_id] += weight * sighting.rarity
    return scores


if __name__ == "__main__":
    with perdure.open(recaller=recall_by_names) as home:
        recalled = home.recall(" ".join(sys.argv[1:]))
        for cue in recalled.cues:
            print(f"{cue.stated_at:%Y-%m-%d} {cue.role}: {cue.text}")
        print(recalled.silent)
