"""Make an image and put it into the project. The call and its answer in the session are the history of images."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perdure.agent.folders import ProjectFolders
from perdure.agent.image_size import find_image_type, read_image_size
from perdure.errors import ToolError
from perdure.models.chat import ToolSpec
from perdure.models.image_endpoint import ImageEndpoint
from perdure.session.calls import Tool, ToolOutput


def build_tool(folders: ProjectFolders, endpoint: ImageEndpoint, job: str) -> Tool:
    """Return the tool image_generate."""
    spec = ToolSpec(
        "image_generate",
        "Make an image from a description, and store it as a file of the project.",
        {
            "type": "object",
            "properties": {
                "prompt": {"type": "string", "minLength": 1},
                "path": {"type": "string", "minLength": 1, "description": "the new file, e.g. docs/logo.png"},
                "size": {"type": "string", "pattern": r"^(\d+x\d+|auto)$", "description": "e.g. 1024x1024"},
            },
            "required": ["prompt", "path"],
            "additionalProperties": False,
        },
    )
    return Tool(spec, lambda given, _: generate_image(folders, endpoint, given, job), is_alone=lambda _: True)


def generate_image(folders: ProjectFolders, endpoint: ImageEndpoint, given: Mapping[str, Any], job: str) -> ToolOutput:
    """Make an image and store it; say what search shall find: prompt, path, model and size. Raises ToolError."""
    path = folders.check(given["path"], is_write=True)
    if path.exists():
        raise ToolError(f"{folders.show(path)} exists already: give a new path")
    data = endpoint.make_image(given["prompt"], size=given.get("size", ""), job=job)
    kind = find_image_type(data)
    if not kind:
        raise ToolError("the provider's answer is no image; nothing was stored")
    folders.replace(path, data)
    size = read_image_size(data)
    label = f"{kind}, {f'{size[0]} × {size[1]}, ' if size else ''}{len(data):,} bytes"
    return ToolOutput(f"Generated image {folders.show(path)} ({label}) by {endpoint.name}: {given['prompt']}")
