"""A back end for Anthropic's memory tool (`memory_20250818`) over this home's notes, memories and files."""

from perdure.surfaces.memory_tool.tool import MemoryTool, anthropic_tool

__all__ = ["MemoryTool", "anthropic_tool"]
