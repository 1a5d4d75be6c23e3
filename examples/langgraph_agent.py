"""A LangGraph agent that remembers across sessions: recall and capture are nodes of its graph.

    pip install perdure langgraph langchain-openai
    python examples/langgraph_agent.py "Our staging server listens on port 9090, please remember that."
    python examples/langgraph_agent.py "Which port does staging listen on?"

The node `recall` puts what matters into the state, `model` sends it beside the newest message, and `capture` keeps what
was said. The messages of the state stay as they were said. Each process is a session.
"""

import asyncio
import os
import sys
import uuid
from typing import Any

from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, convert_to_openai_messages
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

import perdure
from perdure.context import Context

MODEL = os.environ.get("EXAMPLE_MODEL", "gpt-5-mini")


class State(MessagesState):
    """The conversation, and what matters for its newest message."""

    context: Context | None
    n_captured: int


def agent(home: perdure.Home, session: str) -> Any:
    """The graph: recall → model ⇄ tools → capture."""

    @tool
    async def remember(text: str) -> str:  # a coroutine, so that it runs in the thread of the home
        """Keep one short statement that will matter in later sessions."""
        return f"Kept as {home.remember(text, trust='agent').memory_id}."

    chat = ChatOpenAI(model=MODEL).bind_tools([remember])

    async def recall(state: State) -> dict[str, Any]:
        earlier = state.get("context")
        message = str(state["messages"][-1].content)
        floor = earlier.floor if earlier else None  # stays as it was, for the prompt cache
        return {"context": home.context(message, floor=floor, session=perdure.Live(session))}

    async def model(state: State) -> dict[str, Any]:
        context = state["context"]
        assert context is not None
        sent = list(state["messages"])
        newest = max(n for n, message in enumerate(sent) if isinstance(message, HumanMessage))
        sent[newest] = HumanMessage(f"{sent[newest].content}\n\n{context.message_suffix}")
        system = [SystemMessage(context.floor.text)] if context.floor.text else []
        return {"messages": [await chat.ainvoke([*system, *sent])]}

    async def capture(state: State) -> dict[str, Any]:
        fresh = state["messages"][state.get("n_captured", 0) :]
        home.capture_messages(convert_to_openai_messages(fresh), session=session)
        return {"n_captured": len(state["messages"])}

    graph = StateGraph(State)
    for name, node in {"recall": recall, "model": model, "tools": ToolNode([remember]), "capture": capture}.items():
        graph.add_node(name, node)
    graph.add_edge(START, "recall")
    graph.add_edge("recall", "model")
    graph.add_conditional_edges("model", tools_condition, {"tools": "tools", END: "capture"})
    graph.add_edge("tools", "model")
    graph.add_edge("capture", END)
    return graph.compile()


async def converse(messages: list[str]) -> None:
    """Send these messages, one turn each, and print the answers."""
    with perdure.open() as home:
        graph, state = agent(home, uuid.uuid4().hex), {"messages": []}
        for message in messages:
            state = await graph.ainvoke({**state, "messages": [*state["messages"], HumanMessage(message)]})
            answer = state["messages"][-1]
            assert isinstance(answer, AIMessage)
            print(answer.content)


if __name__ == "__main__":
    asyncio.run(converse(sys.argv[1:]))
