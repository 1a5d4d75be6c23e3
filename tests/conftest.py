"""Settings of every test."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from perdure.environ import AGENT_MARKERS
from rig.tier_servers import ObjectServer

for marker in AGENT_MARKERS:  # the tests decide as owners do, also when an agent runs them
    os.environ.pop(marker, None)

# A run of the tests is the same each time; `make fuzz` looks for what no run has seen yet.
settings.register_profile("same", derandomize=True)
settings.register_profile("fuzz", max_examples=2_000, deadline=None)
settings.load_profile("fuzz" if os.environ.get("PERDURE_FUZZ") else "same")


@pytest.fixture(scope="module")
def object_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectServer]:
    """An S3-compatible store; what is in it lives as long as a module of tests."""
    server = ObjectServer(tmp_path_factory.mktemp("objects"))
    server.start()
    yield server
    server.kill()


@pytest.fixture
def object_address(object_server: ObjectServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of an empty place in that store, whose keys are in the environment."""
    for name, value in object_server.environment.items():
        monkeypatch.setenv(name, value)
    return f"s3://bucket/{tmp_path.name}"


@pytest.fixture
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine in Berlin, whose clocks are put back at 03:00 of 2026-10-25, and on at 02:00 of 2026-03-29."""
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()
