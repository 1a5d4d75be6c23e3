"""Settings of every test."""

from __future__ import annotations

import os

from hypothesis import settings

from perdure.environ import AGENT_MARKERS

for marker in AGENT_MARKERS:  # the tests decide as owners do, also when an agent runs them
    os.environ.pop(marker, None)

# A run of the tests is the same each time; `make fuzz` looks for what no run has seen yet.
settings.register_profile("same", derandomize=True)
settings.register_profile("fuzz", max_examples=2_000, deadline=None)
settings.load_profile("fuzz" if os.environ.get("PERDURE_FUZZ") else "same")
