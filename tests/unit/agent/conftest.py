"""Folders of a project, with a home beside it."""

from pathlib import Path

import pytest

from perdure.agent.folders import ProjectFolders


@pytest.fixture(name="folders")
def fixture_folders(tmp_path: Path) -> ProjectFolders:
    project, home, outputs = tmp_path / "project", tmp_path / "mind", tmp_path / "outputs"
    (project / "src").mkdir(parents=True)
    (project / ".git").mkdir()
    (project / "Makefile").write_text("all:\n")
    (project / "link").symlink_to("/etc")
    (home / "agents/default").mkdir(parents=True)
    (home / "config.toml").write_text("")
    outputs.mkdir()
    return ProjectFolders(project, home, project, readable=(outputs,))
