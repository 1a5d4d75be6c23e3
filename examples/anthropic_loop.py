"""A plain loop with Anthropic's SDK that remembers across sessions.

    pip install 'perdure[anthropic]'
    python examples/anthropic_loop.py "Our staging server listens on port 9090, please remember that."
    python examples/anthropic_loop.py "Which port does staging listen on?"

Before each turn it recalls, after each turn it captures, and the model has a tool to remember. Each run is a session.
"""

import os
import sys
import uuid
from typing import Any

import anthropic

import perdure

MODEL = os.environ.get("EXAMPLE_MODEL", "claude-sonnet-5-5")
REMEMBER: Any = {
    "name": "remember",
    "description": "Keep one short statement that will matter in later sessions.",
    "input_schema": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
}


def main(messages: list[str]) -> None:
    """Send these messages, one turn each, and print the answers."""
    client = anthropic.Anthropic()
    session, floor, window = uuid.uuid4().hex, None, []
    with perdure.open() as home:
        for message in messages:
            context = home.context(message, window=window, floor=floor, session=perdure.Live(session))
            floor = context.floor  # within a session what is always true stays as it was, for the prompt cache
            said = turn(client, home, context.anthropic())
            window += [{"role": "user", "content": message}, *said]
            home.capture_messages([{"role": "user", "content": message}, *said], session=session)
            print(said[-1]["content"][0]["text"])


def turn(client: anthropic.Anthropic, home: perdure.Home, request: dict[str, Any]) -> list[dict[str, Any]]:
    """What was said in answer to the newest message of a request, tool calls and their results included."""
    said: list[dict[str, Any]] = []
    while True:
        sent = {**request, "messages": [*request["messages"], *said]}
        reply = client.messages.create(model=MODEL, max_tokens=2000, tools=[REMEMBER], **sent)
        said.append({"role": "assistant", "content": [block.to_dict() for block in reply.content]})
        calls = [block for block in reply.content if block.type == "tool_use"]
        if not calls:
            return said
        results = []
        for call in calls:
            kept = home.remember(call.input["text"], trust="agent")
            results.append({"type": "tool_result", "tool_use_id": call.id, "content": f"Kept as {kept.memory_id}."})
        said.append({"role": "user", "content": results})


if __name__ == "__main__":
    main(sys.argv[1:])
