"""An agent that observes, orients, decides and acts, and that may be killed at any moment.

    pip install 'perdure[openai,workflow]'
    REDIS_URL=redis://127.0.0.1:6379 python examples/ooda.py tickets

It answers the tickets of a folder (`1.txt`), one each turn. A turn begins with the bundle; each phase ends with a
checkpoint, so a new process goes on with the phase that was under way and asks nothing that the model has answered. An
act may be tried again if its checkpoint was not reached: the name of the reply is its key, so it takes effect once.
"""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import openai

import perdure
from perdure.workflow import UnifiedMemory

MODEL = os.environ.get("EXAMPLE_MODEL", "gpt-5-mini")
TEXT = {"type": "string"}
PARAMETERS = {"type": "object", "properties": {"ticket": TEXT, "text": TEXT}, "required": ["ticket", "text"]}
REPLY: Any = {"type": "function", "function": {"name": "reply", "parameters": PARAMETERS}}


def observe(folder: Path) -> str:
    """Return the tickets that have no reply."""
    paths = sorted(path for path in folder.glob("*.txt") if not path.with_suffix(".reply").exists())
    return "\n".join(f"{path.stem}: {path.read_text()}" for path in paths)


async def ask(words: str, **options: Any) -> Any:
    """Return what the model says to this."""
    messages: Any = [{"role": "user", "content": words}]
    reply = await openai.AsyncOpenAI().chat.completions.create(model=MODEL, messages=messages, **options)
    return reply.choices[0].message


def act(folder: Path, ticket: str, text: str) -> str:
    """Answer a ticket, unless that was done before."""
    path = folder / f"{Path(ticket).name}.reply"
    if not path.exists():
        path.write_text(text)
    return f"Answered {ticket}: {text}"


async def main(folder: Path) -> None:
    """Answer every ticket."""
    servers: Any = {"redis_store": os.environ.get("REDIS_URL"), "blob_storage": folder / "tiers"}
    with perdure.open() as home:
        async with UnifiedMemory(folder.name, "answer", "clerk", home=home, **servers) as memory:
            bundle = await memory.rehydrate_bundle()
            state = json.loads(bundle["checkpoint"] or '{"turn": 1}')
            while (tickets := observe(folder)) or "decision" in state:
                if "assessment" not in state:
                    earlier = f"{bundle['ltm_summary'] or ''}\n{bundle['scratchpad']}"
                    answer = await ask(f"Done so far:\n{earlier}\n\nOpen tickets:\n{tickets}\n\nAssess them.")
                    state["assessment"] = answer.content
                    await memory.save_checkpoint(state)
                if "decision" not in state:
                    words = f"{state['assessment']}\n\nOpen tickets:\n{tickets}\n\nAnswer one of them."
                    answer = await ask(words, tools=[REPLY], tool_choice="required")
                    state["decision"] = json.loads(answer.tool_calls[0].function.arguments)
                    await memory.save_checkpoint(state)
                result = act(folder, **state["decision"])
                await memory.log_turn(f"t{state['turn']}", state["assessment"], "reply", result)
                state = {"turn": state["turn"] + 1}
                await memory.save_checkpoint(state)
                bundle = await memory.rehydrate_bundle()
            print(f"{state['turn'] - 1} turns; nothing is open.")


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
