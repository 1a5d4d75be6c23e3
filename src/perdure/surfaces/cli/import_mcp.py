"""The part of `perdure import` that takes in the documents of MCP servers: preview, then apply."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from perdure.config import McpSourceConfig
from perdure.errors import ConfigFault, PackageMissing, PerdureError, SourceAway, UsageError
from perdure.surfaces.cli.common import Shell, format_count
from perdure.surfaces.cli.import_home import open_import_home
from perdure.text import printable

if TYPE_CHECKING:
    from perdure.home import Home
    from perdure.surfaces.mcp.sources import SourceReading

_MAX_SHOWN = 20
_LIMITS = 5  # of each group that is listed without --json


@dataclass
class SourceImport:
    """What came of one server."""

    reading: SourceReading
    outcomes: dict[str, str] = field(default_factory=dict)  # address -> new, changed, unchanged, gone

    @property
    def counts(self) -> Counter[str]:
        """How many documents have each outcome."""
        return Counter(self.outcomes.values())


def import_sources(shell: Shell, names: Sequence[str], *, is_applied: bool) -> None:
    """Show which documents of these servers are new; with is_applied, store them."""
    try:
        import perdure.surfaces.mcp.sources  # noqa: F401
    except ModuleNotFoundError as error:
        raise PackageMissing("pip install 'perdure[mcp]'") from error
    with open_import_home(shell, is_applied=is_applied) as home:
        configured = home.config.mcp.sources
        source_by_name = {name: _get_source(configured, name) for name in names or configured}
        if not source_by_name:
            raise UsageError("config.toml names no source: add a table [mcp.sources.NAME] (docs/import.md)")
        imports, faults = _import_all(home, source_by_name, is_applied=is_applied)
        if is_applied and any(set(imported.outcomes.values()) - {"unchanged"} for imported in imports):
            home.upkeep.catch_up()
            home.upkeep.embed_new()
    if len(source_by_name) == 1 and faults:
        raise next(iter(faults.values()))
    _print_imports(shell, imports, faults, is_applied=is_applied)
    if faults:
        sys.exit(1)


def _import_all(
    home: Home, source_by_name: Mapping[str, McpSourceConfig], *, is_applied: bool
) -> tuple[list[SourceImport], dict[str, PerdureError]]:
    """Ask every source; return what came of those that answered, and the errors of the others by name."""
    from perdure.surfaces.mcp import sources

    if is_applied:
        home.captures.check_not_paused()
    imports: list[SourceImport] = []
    faults: dict[str, PerdureError] = {}
    for name, source in source_by_name.items():
        try:
            reading = sources.read_source(name, source)
        except (SourceAway, ConfigFault) as error:
            faults[name] = error
        else:
            imports.append(_import_documents(home, reading, source, is_applied=is_applied))
    return imports, faults


def _print_imports(
    shell: Shell, imports: Sequence[SourceImport], faults: Mapping[str, PerdureError], *, is_applied: bool
) -> None:
    """Print what came of every source."""
    if shell.as_json:
        failed = [{"source": name, "code": error.code, "why": str(error)} for name, error in faults.items()]
        results = [_to_json(imported) for imported in imports]
        shell.print_json({"applied": is_applied, "sources": results, "failed": failed})
        return
    for imported in imports:
        _print_source(shell, imported, is_applied=is_applied)
    for error in faults.values():
        shell.note(f"Not imported: {printable(str(error))}")
    if not is_applied and any(set(imported.outcomes.values()) - {"unchanged"} for imported in imports):
        shell.out.print("\nNothing was changed. Add --apply to import.", style="bold")


def _get_source(configured: Any, name: str) -> McpSourceConfig:
    if name not in configured:
        known_names = ", ".join(sorted(configured)) or "none"
        raise UsageError(
            f"config.toml names no source {name!r} (known: {known_names}): add a table [mcp.sources.{name}]"
        )
    source: McpSourceConfig = configured[name]
    return source


def _import_documents(home: Home, reading: SourceReading, source: McpSourceConfig, *, is_applied: bool) -> SourceImport:
    """Store the documents that changed; one that may not be kept is refused alone."""
    imported = SourceImport(reading)
    for document in reading.documents:
        try:
            imported.outcomes[document.address] = home.captures.capture_document(
                document.address, document.text, cwd=source.project or None, dry_run=not is_applied
            )
        except UsageError as error:
            reading.refusals.append((document.address, error.detail))
    for address in _list_gone(home, reading):
        if home.captures.capture_document(address, "", cwd=source.project or None, dry_run=not is_applied) == "changed":
            imported.outcomes[address] = "gone"
    return imported


def _list_gone(home: Home, reading: SourceReading) -> list[str]:
    """Return the stored resources that the server does not list any more; none if it did not list them all."""
    if not reading.has_all_resources:
        return []
    listed = {document.address for document in reading.documents} | {address for address, _ in reading.refusals}
    tools = f"{reading.name}:tool/"
    stored_addresses = home.captures.list_documents(reading.name)
    return [address for address in stored_addresses if address not in listed and not address.startswith(tools)]


def _to_json(imported: SourceImport) -> dict[str, Any]:
    reading = imported.reading
    sizes = {document.address: len(document.text) for document in reading.documents}
    return {
        "source": reading.name,
        "server": reading.server,
        "documents": [
            {"address": address, "chars": sizes.get(address, 0), "outcome": outcome}
            for address, outcome in imported.outcomes.items()
        ],
        "left_out": dict(+reading.left_out),
        "refused": [{"address": address, "why": why} for address, why in reading.refusals],
    }


def _print_source(shell: Shell, imported: SourceImport, *, is_applied: bool) -> None:
    reading, counts = imported.reading, imported.counts
    n_documents = format_count(len(reading.documents), "document")
    shell.out.print(f"{reading.name} ({reading.server}): {n_documents}", style="bold", markup=False)
    prefix = "" if is_applied else "would be "
    gone_text = f", {counts['gone']:,} gone" if counts["gone"] else ""
    shell.out.print(
        f"  {counts['new']:,} {prefix}new, {counts['changed']:,} {prefix}changed, {counts['unchanged']:,} unchanged"
        f"{gone_text}"
    )
    fresh = [(address, outcome) for address, outcome in imported.outcomes.items() if outcome != "unchanged"]
    for address, outcome in fresh[:_MAX_SHOWN]:
        shell.out.print(f"  {outcome}: {printable(address)}", markup=False)
    if len(fresh) > _MAX_SHOWN:
        shell.out.print(f"  … and {len(fresh) - _MAX_SHOWN:,} more (--json lists them)", style="dim")
    if left_out := +reading.left_out:
        shell.note(f"  Left out: {', '.join(f'{name} {n:,}' for name, n in sorted(left_out.items()))}")
    for address, why in reading.refusals[:_LIMITS]:
        shell.note(f"  {printable(address)} {why}")
    if len(reading.refusals) > _LIMITS:
        shell.note(f"  … and {len(reading.refusals) - _LIMITS:,} more not read (--json names them)")
