"""An agent of the OpenAI Agents SDK whose session outlives the process, and that remembers across sessions.

    pip install perdure openai-agents
    python examples/openai_agents_session.py monday "Our staging server listens on port 9090, please remember that."
    python examples/openai_agents_session.py tuesday "Which port does staging listen on?"

The first argument names the session: the same name goes on where it ended.
"""

import asyncio
import os
import sys

import perdure
from agents import Agent, RunConfig, Runner, function_tool, set_tracing_disabled
from perdure.frameworks.openai_agents import PerdureSession


async def main(name: str, messages: list[str]) -> None:
    """Send these messages in a session, and print the answers."""
    with perdure.open() as home, PerdureSession(name, home) as session:

        @function_tool
        async def remember(text: str) -> str:  # a coroutine, so that it runs in the thread of the home
            """Keep one short statement that will matter in later sessions."""
            return f"Kept as {home.remember(text, trust='agent').memory_id}."

        agent = Agent("assistant", model=os.environ.get("EXAMPLE_MODEL", "gpt-5-mini"), tools=[remember])
        config = RunConfig(call_model_input_filter=session.add_recall)
        for message in messages:
            print((await Runner.run(agent, message, session=session, run_config=config)).final_output)


if __name__ == "__main__":
    set_tracing_disabled(True)  # traces would go to OpenAI
    asyncio.run(main(sys.argv[1], sys.argv[2:]))
