"""Write memories in the forms that other products read. Pure: file names and their content.

Another product has no history and no trust: only current memories are written, each under its subject, the path without
its last part. Secrets were masked when a memory was made.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence

from perdure.archive.memory_events import fold_path
from perdure.memories.markdown import to_file_name, to_yaml
from perdure.text import printable
from perdure.types import Memory

CLAUDE_FILE = "claude-memory.md"
MEMORY_SERVER_FILE = "memory.jsonl"
MEM0_FILE = "mem0.json"


def render_files(form: str, memories: Iterable[Memory], *, user: str) -> dict[str, bytes]:
    """Return the files of a form: relative name -> content. form: one of FORMS. user: whose memories they are."""
    ordered_memories = sorted(memories, key=lambda memory: (memory.stated_at, memory.memory_id))
    files = FORMS[form](ordered_memories, user)
    return {name: text.encode("utf-8", "replace") for name, text in files.items()}


def _render_memory_server(memories: Sequence[Memory], user: str) -> dict[str, str]:  # noqa: ARG001
    """Return the file of the MCP memory server: an entity for each subject, with its memories as observations."""
    lines = [
        {
            "type": "entity",
            "name": subject,
            "entityType": "subject",
            "observations": list(dict.fromkeys(_to_line(memory) for memory in group)),
        }
        for subject, group in _group_by_subject(memories).items()
    ]
    return {MEMORY_SERVER_FILE: "\n".join(json.dumps(line, ensure_ascii=False) for line in lines)}


def _render_mem0(memories: Sequence[Memory], user: str) -> dict[str, str]:
    """Return what `Memory.get_all()` of mem0 answers."""
    results = [
        {
            "id": memory.memory_id,
            "memory": memory.text,
            "metadata": {
                "category": memory.kind,
                "path": memory.path,
                "project": memory.project,
                "trust": memory.trust,
            },
            "created_at": memory.stated_at.isoformat(),
            "updated_at": memory.stated_at.isoformat(),
            "user_id": user,
        }
        for memory in memories
    ]
    return {MEM0_FILE: json.dumps({"results": results}, ensure_ascii=False, indent=1) + "\n"}


def _render_basic_memory(memories: Sequence[Memory], user: str) -> dict[str, str]:  # noqa: ARG001
    """Return a note of basic-memory for each subject, with its memories as observations."""
    files = {}
    for subject, group in _group_by_subject(memories).items():
        fields: dict[str, str | list[str]] = {
            "title": subject,
            "type": "note",
            "permalink": subject,
            "tags": ["perdure"],
            "created": min(memory.stated_at for memory in group).isoformat(),
            "modified": max(memory.stated_at for memory in group).isoformat(),
        }
        header = "".join(f"{name}: {to_yaml(value)}\n" for name, value in fields.items())
        items = "".join(f"- [{memory.kind}] {_to_line(memory)}\n" for memory in group)
        name = "/".join(map(to_file_name, subject.split("/")))
        files[f"{name}.md"] = f"---\n{header}---\n\n# {subject}\n\n## Observations\n\n{items}"
    return files


def _render_claude(memories: Sequence[Memory], user: str) -> dict[str, str]:  # noqa: ARG001
    """Return the text that Claude imports as memory: one entry a line, with its date."""
    lines = [f"[{memory.stated_at:%Y-%m-%d}] - {_to_line(memory)}\n" for memory in memories]
    return {CLAUDE_FILE: "".join(lines)}


FORMS: Mapping[str, Callable[[Sequence[Memory], str], dict[str, str]]] = {
    "basic-memory": _render_basic_memory,
    "memory-server": _render_memory_server,
    "mem0": _render_mem0,
    "claude": _render_claude,
}


def _group_by_subject(memories: Iterable[Memory]) -> dict[str, list[Memory]]:
    """Return the memories of each subject, in order. Subjects that differ only in case are one."""
    groups: dict[str, list[Memory]] = {}
    names: dict[str, str] = {}
    for memory in memories:
        subject = memory.path.rpartition("/")[0] or memory.path
        groups.setdefault(names.setdefault(fold_path(subject), subject), []).append(memory)
    return groups


def _to_line(memory: Memory) -> str:
    return " ".join(printable(memory.text).split())
