"""How many tokens a session saves when the outputs of its tools are left out, and nothing that anybody said.

The rule is the one by which a session of Perdure masks: an output of 400 characters or more becomes a line that says so
(`session/assemble.py`). Here it is applied to recorded sessions of other clients, once to every output and once to
those before the last 20 rounds. Thoughts do not count. Texts, calls and short outputs stay word for word.

    python -m benchmarks.trimming TRANSCRIPTS [--keep]
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from benchmarks.common import describe_run, keep_result, table
from benchmarks.parse import SHARED, sources
from perdure import formats
from perdure.capture.lines import split_lines
from perdure.eval import measures
from perdure.session.assemble import MASKED_OUTPUT
from perdure.text import tokens
from perdure.types import Turn

MIN_CHARS = 400  # of an output that is left out
N_ROUNDS = 20
MIN_OUTPUTS = 10  # of a session that is called heavy on tools


def measure_session(turns: Sequence[Turn]) -> tuple[int, int, int, int]:
    """Return the tokens of a session, those left with every output masked, those with old ones, and its outputs."""
    rounds = [n for n, turn in enumerate(turns) if turn.author == "person"]
    tail = rounds[-N_ROUNDS] if len(rounds) > N_ROUNDS else 0
    whole = masked = masked_old = n_outputs = 0
    for n, turn in enumerate(turns):
        for part in turn.parts:
            if part.kind not in ("text", "call", "result"):
                continue
            size = cut = tokens(part.text)
            if part.kind == "result":
                n_outputs += 1
                if len(part.text) >= MIN_CHARS:
                    cut = tokens(MASKED_OUTPUT.format(tool="Bash", n_chars=len(part.text), entry="e" * 12))
            whole += size
            masked += cut
            masked_old += cut if n < tail else size
    return whole, masked, masked_old, n_outputs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("transcripts", type=Path, nargs="?", default=SHARED)
    parser.add_argument("--keep", action="store_true", help="keep the result in benchmarks/results")
    options = parser.parse_args()
    if not options.transcripts.exists():
        sys.exit(f"there is no {options.transcripts}")
    sessions = [
        measure_session(formats.parse(runtime, split_lines(path.read_bytes())).turns)
        for runtime, path in sources(options.transcripts)
    ]
    heavy = [session for session in sessions if session[3] >= MIN_OUTPUTS]
    savings = {
        "every output": [1 - masked / whole for whole, masked, _, _ in heavy],
        "before the last 20 rounds": [1 - masked_old / whole for whole, _, masked_old, _ in heavy],
    }
    result = {
        "n_sessions": len(sessions), "n_heavy": len(heavy), "n_tokens": sum(session[0] for session in heavy),
        "saved": {name: asdict(measures.bootstrap(values)) for name, values in savings.items()},
        "saved_of_all_tokens": 1 - sum(session[1] for session in heavy) / sum(session[0] for session in heavy),
    }  # fmt: skip
    table("share of the tokens saved, mean of the sessions", [{"masked": k, **v} for k, v in result["saved"].items()])
    if options.keep:
        keep_result("trimming", {**describe_run(), **result})


if __name__ == "__main__":
    main()
