"""Every page, audited by axe-core: in light and dark, on a desk and on a phone; and none that scrolls sideways."""

from __future__ import annotations

from importlib.resources import files

import pytest

pytest.importorskip("axe_playwright_python")

from perdure.surfaces.page.table import TABLE

AXE = files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8")
RULES = {"runOnly": {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]}}
SIZES = ((1280, 900), (390, 844))
NARROW = {"width": 360, "height": 740}
OPEN = {"/enter", "/enter?to=/search"}  # shown to nobody in particular


def examples(home) -> dict[str, list[str]]:
    """The address of each view -> such pages as there are."""
    return {}


def found(page) -> list[str]:
    """What the audit finds: rule, where, and why."""
    violations = page.evaluate("rules => axe.run(document, rules)", RULES)["violations"]
    return [
        f"{one['id']}: {node['target']} {node['failureSummary']}" for one in violations for node in one["nodes"][:4]
    ]
