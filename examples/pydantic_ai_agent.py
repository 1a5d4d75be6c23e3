"""A Pydantic AI agent that remembers across sessions, by a capability of twenty lines.

    pip install perdure 'pydantic-ai-slim[openai]'
    python examples/pydantic_ai_agent.py "Our staging server listens on port 9090, please remember that."
    python examples/pydantic_ai_agent.py "Which port does staging listen on?"

What is always true is among the agent's instructions; what was recalled stands behind the newest message of each
request and never in the history; what was said is captured when a run ends. Each process is a session.
"""

import dataclasses
import os
import sys
import uuid
from collections.abc import Sequence
from typing import Any

from pydantic_ai import Agent, AgentRunResult, ModelMessage, ModelRequest, RunContext, TextPart, UserPromptPart
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.models import ModelRequestContext

import perdure

MODEL = os.environ.get("EXAMPLE_MODEL", "gpt-5-mini")


@dataclasses.dataclass
class Memory(AbstractCapability[Any]):
    """Recall before every request, capture after every run."""

    home: perdure.Home
    session: str = dataclasses.field(default_factory=lambda: uuid.uuid4().hex)

    def get_instructions(self) -> str | None:
        """What is always true, as it stands when the session begins."""
        return self.home.floor.layers().text or None

    async def before_model_request(self, ctx: RunContext[Any], request_context: ModelRequestContext) -> Any:
        """Put what was recalled behind the newest message: into this request, not into the history."""
        if isinstance(ctx.prompt, str):
            beside = self.home.context(ctx.prompt, session=perdure.Live(self.session)).message_suffix
            request_context.messages = with_beside(request_context.messages, ctx.prompt, beside)
        return request_context

    async def after_run(self, ctx: RunContext[Any], *, result: AgentRunResult[Any]) -> AgentRunResult[Any]:
        """Capture what was said in this run."""
        self.home.capture_messages(plain(result.new_messages()), session=self.session)
        return result


def with_beside(messages: Sequence[ModelMessage], prompt: str, beside: str) -> list[ModelMessage]:
    """The same messages with a part behind the newest prompt."""
    found = list(messages)
    for n in reversed(range(len(found))):
        parts = found[n].parts
        if any(isinstance(part, UserPromptPart) and part.content == prompt for part in parts):
            found[n] = dataclasses.replace(found[n], parts=[*parts, UserPromptPart(beside)])
            break
    return found


def plain(messages: Sequence[ModelMessage]) -> list[dict[str, Any]]:
    """What people and agents said, as plain messages."""
    found = []
    for message in messages:
        kind = UserPromptPart if isinstance(message, ModelRequest) else TextPart
        texts = [part.content for part in message.parts if isinstance(part, kind) and isinstance(part.content, str)]
        if texts:
            found.append({"role": "user" if kind is UserPromptPart else "assistant", "content": "\n\n".join(texts)})
    return found


def main(messages: list[str]) -> None:
    """Send these messages, one run each, and print the answers."""
    with perdure.open() as home:
        agent = Agent(f"openai-chat:{MODEL}", capabilities=[Memory(home)])

        @agent.tool_plain
        async def remember(text: str) -> str:  # a coroutine, so that it runs in the thread of the home
            """Keep one short statement that will matter in later sessions."""
            return f"Kept as {home.remember(text, trust='agent').memory_id}."

        history: list[ModelMessage] = []
        for message in messages:
            result = agent.run_sync(message, message_history=history)
            history = result.all_messages()
            print(result.output)


if __name__ == "__main__":
    main(sys.argv[1:])
