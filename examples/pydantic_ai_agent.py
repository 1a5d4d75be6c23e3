"""A Pydantic AI agent that remembers across sessions: one capability recalls, captures, and brings the tools.

    pip install perdure 'pydantic-ai-slim[openai]'
    python examples/pydantic_ai_agent.py "Our staging server listens on port 9090, please remember that."
    python examples/pydantic_ai_agent.py "Which port does staging listen on?"

Each process is a session of its own. Give `PerdureMemory` the name of a session to go on with it.
"""

import os
import sys

from pydantic_ai import Agent, ModelMessage

import perdure
from perdure.frameworks.pydantic_ai import PerdureMemory

MODEL = os.environ.get("EXAMPLE_MODEL", "gpt-5-mini")


def main(messages: list[str]) -> None:
    """Send these messages, one run each, and print the answers."""
    with perdure.open() as home, PerdureMemory(home) as memory:
        agent = Agent(f"openai-chat:{MODEL}", capabilities=[memory])
        history: list[ModelMessage] = []
        for message in messages:
            result = agent.run_sync(message, message_history=history)
            history = result.all_messages()
            print(result.output)


if __name__ == "__main__":
    main(sys.argv[1:])
