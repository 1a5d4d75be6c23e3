"""A LangGraph program whose threads and facts outlive the process: its checkpointer and its store are a home.

    pip install perdure langgraph langchain-openai
    python examples/langgraph_memory.py monday "Our staging server listens on port 9090, please remember that."
    python examples/langgraph_memory.py tuesday "Which port does staging listen on?"

The first argument names the thread. Under the same name it goes on where it ended, in another process as well.
"""

import os
import sys
from typing import Any

from langchain_openai import ChatOpenAI
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.runtime import Runtime

import perdure
from perdure.frameworks.langgraph import PerdureSaver, PerdureStore

FACTS = ("users", "ann", "facts")


def answer(state: MessagesState, runtime: Runtime[None]) -> dict[str, Any]:
    """Look up what is known, ask the model, and keep what Ann said."""
    message, store = state["messages"][-1], runtime.store
    facts = "\n".join(item.value["text"] for item in store.search(FACTS, query=message.content, limit=3))
    store.put(FACTS, message.id, {"text": message.content})
    model = ChatOpenAI(model=os.environ.get("EXAMPLE_MODEL", "gpt-5-mini"))
    return {"messages": [model.invoke([("system", f"Ann said earlier:\n{facts}"), *state["messages"]])]}


if __name__ == "__main__":
    with perdure.open() as home, PerdureStore(home) as store, PerdureSaver(home) as saver:
        graph = StateGraph(MessagesState).add_node(answer).add_edge(START, "answer").compile(saver, store=store)
        for text in sys.argv[2:]:
            state = graph.invoke({"messages": [("user", text)]}, {"configurable": {"thread_id": sys.argv[1]}})
            print(state["messages"][-1].content)
