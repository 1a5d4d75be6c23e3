"""One task of several agents and steps: four tiers of memory behind one object (docs/workflow.md)."""

from perdure.workflow.unified_memory import UnifiedMemory

__all__ = ["UnifiedMemory"]
