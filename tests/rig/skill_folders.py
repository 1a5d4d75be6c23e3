"""Folders with skills."""

from __future__ import annotations

from pathlib import Path


def put_skill(parent: Path, name: str, body: str = "Run make.", *, description: str = "", head: str = "") -> Path:
    """Write SKILL.md into a folder below another one, and return that folder."""
    folder = parent / name
    folder.mkdir(parents=True, exist_ok=True)
    description = description or f"How we {name}."
    (folder / "SKILL.md").write_text(f"---\nname: {name}\ndescription: {description}\n{head}---\n\n{body}\n")
    return folder
