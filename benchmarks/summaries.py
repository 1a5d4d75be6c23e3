"""What details are lost after one, two and three summaries, by who writes them (docs/evaluation/compaction.md).

    python -m benchmarks.summaries --keep            # rules and a scripted summariser, four long conversations: 3 min
    python -m benchmarks.summaries --small --keep    # and the small model (`make model`), a short one: 4 min alone

The small model does not stop before its limit, and the product takes a summary that was cut off for a failure. Here its
whole lines count, so that there is something to measure.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import Any

from benchmarks.common import describe_run, keep_result
from perdure.eval import compaction
from perdure.models.chat import Chat, ChatReply
from rig import local_model

N_SUMMARIES = (1, 2, 3)
HALF = "held_out"  # written after the rules were frozen; four facts of each kind
LONG, N_LONG = 250, 4  # rounds of a conversation (60,000 tokens), conversations
SHORT, N_SHORT = 16, 1  # 4,000 tokens: the small model reads slowly
SHORT_SESSION = {"tail_rounds": 3, "tail_tokens": 900, "summary_tokens": 600, "recall_tokens": 300}  # a tenth of it


class LineChat:
    """A model whose answer counts up to its last whole line where it was cut off."""

    def __init__(self, chat: Chat) -> None:
        self._chat, self.name, self.window_tokens = chat, chat.name, chat.window_tokens
        self.takes_tools = False

    def reply(self, messages: Any, **options: Any) -> ChatReply:
        reply = self._chat.reply(messages, **options)
        if reply.stop == "end":
            return reply
        return replace(reply, text=reply.text.rpartition("\n")[0] or reply.text, stop="end")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="with the small model, on short conversations")
    parser.add_argument("--keep", action="store_true", help="keep the result in benchmarks/results")
    options = parser.parse_args()
    n_talks, n_rounds = (N_SHORT, SHORT) if options.small else (N_LONG, LONG)
    report = compaction.run(
        half=HALF,
        vectors=False,
        model=LineChat(compaction.open_summariser(local_model.file())) if options.small else None,
        n_compactions=N_SUMMARIES,
        talks=[compaction.make_own_talk(seed, n_rounds=n_rounds) for seed in range(1, n_talks + 1)],
        session=SHORT_SESSION if options.small else {},
        progress=lambda n_done, n_all: print(f"  {n_done} of {n_all}", flush=True),
    )
    print(report.text())
    if options.keep:
        name = "summaries-small" if options.small else "summaries"
        keep_result(name, {**describe_run(), "n_talks": n_talks, "summaries": report.figures["compactions"]})


if __name__ == "__main__":
    main()
