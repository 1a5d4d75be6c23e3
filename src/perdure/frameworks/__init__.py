"""A home in the shapes of other frameworks: a module for each, which nothing else here imports (docs/builders.md).

from perdure.frameworks.langgraph import PerdureSaver, PerdureStore
from perdure.frameworks.openai_agents import PerdureSession
from perdure.frameworks.pydantic_ai import PerdureMemory
"""
