"""One task of several agents and steps: four tiers of memory behind one object (docs/workflow.md)."""

from perdure.workflow.athena import AthenaMemory, get_athena_client
from perdure.workflow.unified_memory import UnifiedMemory

__all__ = ["AthenaMemory", "UnifiedMemory", "get_athena_client"]
