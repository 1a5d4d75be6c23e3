"""A plain loop with OpenAI's SDK, or any endpoint that speaks like it, that remembers across sessions.

    pip install 'perdure[openai]'
    python examples/openai_loop.py "Our staging server listens on port 9090, please remember that."
    python examples/openai_loop.py "Which port does staging listen on?"

Before each turn it recalls, after each turn it captures, and the model has a tool to remember. Each run is a session.
"""

import json
import os
import sys
import uuid
from typing import Any

import openai

import perdure

MODEL = os.environ.get("EXAMPLE_MODEL", "gpt-5-mini")
REMEMBER: Any = {
    "type": "function",
    "function": {
        "name": "remember",
        "description": "Keep one short statement that will matter in later sessions.",
        "parameters": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
    },
}


def main(messages: list[str]) -> None:
    """Send these messages, one turn each, and print the answers."""
    client = openai.OpenAI()
    session, floor, window = uuid.uuid4().hex, None, []
    with perdure.open() as home:
        for message in messages:
            context = home.context(message, window=window, floor=floor, session=perdure.Live(session))
            floor = context.floor  # within a session what is always true stays as it was, for the prompt cache
            said = turn(client, home, context.openai()["messages"])
            window += [{"role": "user", "content": message}, *said]
            home.capture_messages([{"role": "user", "content": message}, *said], session=session)
            print(said[-1]["content"])


def turn(client: openai.OpenAI, home: perdure.Home, asked: list[Any]) -> list[dict[str, Any]]:
    """What was said in answer to the newest message, tool calls and their results included."""
    said: list[dict[str, Any]] = []
    while True:
        reply = client.chat.completions.create(model=MODEL, messages=[*asked, *said], tools=[REMEMBER])
        answer = reply.choices[0].message
        said.append(answer.to_dict())
        if not answer.tool_calls:
            return said
        for call in answer.tool_calls:
            kept = home.remember(json.loads(call.function.arguments)["text"], trust="agent")
            said.append({"role": "tool", "tool_call_id": call.id, "content": f"Kept as {kept.memory_id}."})


if __name__ == "__main__":
    main(sys.argv[1:])
