"""What clients install by their own commands: it captures and recalls as `perdure install` does."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from rig.clients import main_requests
from rig.resident import ScriptedResident

ROOT = Path(__file__).parents[2]
INSTALLED = {
    "claude-code": (("plugin", "marketplace", "add", str(ROOT)), ("plugin", "install", "perdure@perdure")),
    "codex": (("plugin", "marketplace", "add", str(ROOT)), ("plugin", "add", "perdure@perdure")),
    "pi": (("install", str(ROOT / "plugins" / "pi")),),
}


@pytest.mark.parametrize("name", INSTALLED)
def test_client_installs_the_plugin_by_its_own_command(
    name: str, client, home: Path, model, place: Path, archived
) -> None:
    tested = client(name, setup=False, more_environment={"PERDURE_HOME": str(home), "PATH": f"{on_path(place)}:"})
    for words in INSTALLED[name]:
        done = tested.run(*words)
        assert done.status == 0, done.out + done.err
    home.mkdir(mode=0o700)
    with ScriptedResident(home, "MARK-{kind}"):
        done = tested.say("Hello.\n@say Done here.")
    assert "Done here." in done.out
    assert "MARK-prompt" in json.dumps(main_requests(model.requests))
    assert archived(home) == {str(path): path.read_bytes() for path in tested.transcripts()}


def on_path(place: Path) -> Path:
    """A folder with `perdure-hook` in it, as an installation puts it on the path."""
    folder = place / "bin"
    folder.mkdir()
    script = folder / "perdure-hook"
    paths = os.pathsep.join(sys.path)
    script.write_text(f'#!/bin/sh\nPYTHONPATH="{paths}" exec "{sys.executable}" -m perdure.capture.hook "$@"\n')
    script.chmod(0o755)
    return folder
