"""One agent of a workflow, as a process that may be killed at any moment: started again, it goes on.

    python tier_agent.py HOME REDIS_URL BLOB_STORAGE FOLDER NAME N_TURNS TURN_S PAUSE_S

FOLDER/NAME gets the number of each turn when it was acknowledged. The last of those is told once more after a start, as
a program does that was killed before it noted it.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import perdure
from perdure.workflow import tier_queue
from perdure.workflow.memory import WorkflowMemory

WORKFLOW = "kills"
N_COMPRESS = 40  # turns, after which the agent looks whether a summary is due
_END_S = 120.0  # for what waits, at the end


def main(
    home: str, redis_url: str, place: str, folder: str, name: str, n_turns: str, turn_s: str, pause_s: str
) -> None:
    """Log the turns that this agent has not logged yet."""
    tier_queue.PAUSE_S = float(pause_s)
    path = Path(folder, name)
    first = int(path.read_text().split()[-1]) if path.exists() and path.stat().st_size else 0
    with perdure.open(Path(home)) as opened, path.open("a") as acknowledged:
        memory = WorkflowMemory(WORKFLOW, f"step-{name}", name, redis_store=redis_url, blob_storage=place, home=opened)
        for number in range(first, int(n_turns)):
            memory.log_turn(f"{name}-{number}", f"Thought {number} of {name}.", "http_get", "200 OK " * 20, number)
            print(number, file=acknowledged, flush=True)
            memory.save_checkpoint({"next": number + 1})
            if number % N_COMPRESS == 0:
                memory.compress()
            time.sleep(float(turn_s))
        deadline_s = time.monotonic() + _END_S
        while not memory.flush() and time.monotonic() < deadline_s:
            time.sleep(0.5)
        print({tier: status for tier, status in memory.status().items() if status.waiting or status.dropped})
        memory.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
