"""What the loop of the agent costs by itself: a turn of a scripted model that answers at once, with one read_file.

    python -m benchmarks.agent

A turn is one answer of the model with its call: the context is assembled, the answer is logged (fsynced), the call is
decided and run, and its result is logged (fsynced). Recall comes once with each message and is not part of it: the cost
of a message without calls is shown beside it.
"""

from __future__ import annotations

import statistics
import time
from pathlib import Path

import perdure
from benchmarks.common import save, scratch, table
from perdure.agent.agent import open_agent
from perdure.models.chat import ChatReply, ToolCall
from perdure.testing import ScriptedChat

N_TURNS = 50
N_MESSAGES = 10


def measure(folder: Path) -> dict[str, float]:
    """Return milliseconds for each turn and each message, by the clock and of the processor."""
    project = folder / "project"
    project.mkdir()
    (project / "a.txt").write_text("a line\n" * 100)
    call = ChatReply("", calls=(ToolCall("c", "read_file", {"path": "a.txt"}),), stop="tool")
    empty_ms: list[tuple[float, float]] = []
    full_ms: list[tuple[float, float]] = []
    with perdure.open(folder / "home") as home:
        chat = ScriptedChat([])
        with open_agent(home, cwd=str(project), chat=chat, recall_mode="keyword") as agent:
            agent.session.say("Begin.")
            for number in range(N_MESSAGES):
                for script, times in (([], empty_ms), ([call] * N_TURNS, full_ms)):
                    chat.answers = [*script, "Done."]
                    wall_s, cpu_s = time.perf_counter(), time.process_time()
                    agent.session.say(f"Message {number} about the tide at the harbour.")
                    times.append(((time.perf_counter() - wall_s) * 1000, (time.process_time() - cpu_s) * 1000))
    turns = [((f[0] - e[0]) / N_TURNS, (f[1] - e[1]) / N_TURNS) for e, f in zip(empty_ms, full_ms, strict=True)]
    return {
        "turn_wall_ms": round(statistics.median(wall for wall, _ in turns), 2),
        "turn_cpu_ms": round(statistics.median(cpu for _, cpu in turns), 2),
        "turn_wall_last_ms": round(turns[-1][0], 2),  # in a context of N_MESSAGES * N_TURNS turns
        "message_wall_ms": round(statistics.median(wall for wall, _ in empty_ms), 2),
        "message_cpu_ms": round(statistics.median(cpu for _, cpu in empty_ms), 2),
    }


def main() -> None:
    """Measure and print."""
    with scratch() as folder:
        figures = measure(folder)
    save("agent", figures)
    table("The loop of the agent, without its model", [figures])


if __name__ == "__main__":
    main()
