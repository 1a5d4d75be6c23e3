"""A home as LangGraph's store (`PerdureStore`) and as its checkpointer (`PerdureSaver`)."""

from perdure.frameworks.langgraph.saver import PerdureSaver
from perdure.frameworks.langgraph.store import PerdureStore

__all__ = ["PerdureSaver", "PerdureStore"]
