"""Read what the manifests of a repository say: dependencies with their versions, scripts with their commands.

The files are strangers': only small ones in the root are read, and one that cannot be parsed says nothing.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from perdure.memories.gate import RepositoryFact

_MAX_BYTES = 1 << 17  # of one manifest
_MAX_FACTS = 2_000
_REQUIREMENT = re.compile(r"\s*([A-Za-z0-9][\w.-]*)\s*(?:\[[^\]\n]*\])?\s*([<>=!~][^;#\n]*)")
_GO_LINE = re.compile(r"\s*(?:require\s+)?(\S+)\s+v?(\d\S*)")


def list_facts(project: str | None) -> list[RepositoryFact]:
    """Return the facts in the manifests of a project's folder; none for a project that is no folder here."""
    folder = Path(project) if project and "\0" not in project else Path()
    if not folder.is_absolute():
        return []
    facts = (fact for name, parse in _PARSERS.items() for fact in _read_manifest(folder / name, parse))
    return list(islice(facts, _MAX_FACTS))


def _read_manifest(path: Path, parse: Callable[[str], Iterator[tuple[str, Any]]]) -> list[RepositoryFact]:
    try:
        if not path.is_file() or path.stat().st_size > _MAX_BYTES:
            return []
        return [
            RepositoryFact(str(name), value)
            for name, value in parse(path.read_text("utf-8", "replace"))
            if isinstance(value, str)
        ]
    except (OSError, ValueError, RecursionError):
        return []


def _parse_package_json(text: str) -> Iterator[tuple[str, Any]]:
    manifest = json.loads(text)
    for table in ("dependencies", "devDependencies", "peerDependencies", "engines", "scripts"):
        yield from _get_table(manifest, table).items()


def _parse_pyproject(text: str) -> Iterator[tuple[str, Any]]:
    manifest = tomllib.loads(text)
    project = _get_table(manifest, "project")
    yield "python", project.get("requires-python")
    groups = [project.get("dependencies"), *_get_table(project, "optional-dependencies").values()]
    for group in [*groups, *_get_table(manifest, "dependency-groups").values()]:
        for line in group if isinstance(group, list) else ():
            yield from _parse_requirements(line) if isinstance(line, str) else ()
    yield from _get_table(project, "scripts").items()


def _parse_cargo(text: str) -> Iterator[tuple[str, Any]]:
    manifest = tomllib.loads(text)
    yield "rust", _get_table(manifest, "package").get("rust-version")
    for table in ("dependencies", "dev-dependencies", "build-dependencies"):
        for name, value in _get_table(manifest, table).items():
            yield name, value.get("version") if isinstance(value, dict) else value


def _parse_requirements(text: str) -> Iterator[tuple[str, str]]:
    for line in text.splitlines():
        if match := _REQUIREMENT.match(line):
            yield match[1], match[2].strip()


def _parse_go(text: str) -> Iterator[tuple[str, str]]:
    for line in text.splitlines():
        if match := _GO_LINE.match(line):
            yield match[1].rpartition("/")[2], match[2]


def _get_table(table: Any, name: str) -> Mapping[str, Any]:
    value = table.get(name) if isinstance(table, dict) else None
    return value if isinstance(value, dict) else {}


_PARSERS: dict[str, Callable[[str], Iterator[tuple[str, Any]]]] = {
    "package.json": _parse_package_json,
    "pyproject.toml": _parse_pyproject,
    "Cargo.toml": _parse_cargo,
    "requirements.txt": _parse_requirements,
    "go.mod": _parse_go,
}
