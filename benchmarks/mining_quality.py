"""Precision and recall of mining: recorded answers of models against labels by hand (docs/evaluation/mining.md).

    python -m benchmarks.mining_quality --keep          # score the recorded answers in benchmarks/answers
    python -m benchmarks.mining_quality --ask --keep    # first ask the small model (`make model`)

The small model alone takes ten minutes. Any other model: `perdure eval --mining --ask --answers FILE`.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from benchmarks.common import describe_run, keep_result, timed
from perdure.config import RoleConfig
from perdure.eval import mining_quality
from perdure.models.chat import Chat, ChatReply
from perdure.models.gguf import GgufChat
from perdure.models.roles import read_model_settings
from rig import local_model

ANSWERS = Path(__file__).parent / "answers"
SMALL = ANSWERS / "smollm2-135m.jsonl"
MAX_OPERATIONS = 2  # in an answer of the small model, which writes as many as it may, most of them without words


class NarrowChat:
    """A small model that is allowed short answers only."""

    def __init__(self, chat: Chat) -> None:
        self._chat, self.name, self.window_tokens = chat, chat.name, chat.window_tokens
        self.takes_tools = False

    def reply(self, messages: Any, *, schema: dict[str, Any] | None = None, **options: Any) -> ChatReply:
        narrowed = local_model.narrowed(schema, operations=MAX_OPERATIONS) if schema else None
        return self._chat.reply(messages, schema=narrowed, **options)


def open_small_model() -> NarrowChat:
    """The model of the tests. Raises local_model.Missing without it."""
    role = RoleConfig(provider="gguf", model=str(local_model.file()), max_output_tokens=1500, timeout_s=3600)
    return NarrowChat(GgufChat(read_model_settings("miner", role)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ask", action="store_true")
    parser.add_argument("--keep", action="store_true", help="keep the result in benchmarks/results")
    options = parser.parse_args()
    if options.ask:
        ANSWERS.mkdir(exist_ok=True)
        with timed() as clock:
            mining_quality.record_answers(mining_quality.make_batches(), open_small_model(), SMALL, progress=_tell)
        print(f"asked in {clock.wall_s:.0f} s, {clock.cpu_s:.0f} s of the processor")
    figures: dict[str, Any] = {}
    for path in sorted(ANSWERS.glob("*.jsonl")):
        report = mining_quality.run(path)
        print(report.text(), end="\n\n")
        miners = dict(report.figures["miners"])
        figures |= {(path.stem if name not in figures and ":" in name else name): row for name, row in miners.items()}
    if options.keep:
        keep_result("mining", {**describe_run(), "miners": figures})


def _tell(n_done: int, n_all: int) -> None:
    print(f"  {n_done} of {n_all}", flush=True)


if __name__ == "__main__":
    main()
