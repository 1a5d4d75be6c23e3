"""`perdure demo`: each scene runs as a person runs it, leaves nothing behind, and fails where its story is not true."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from perdure.surfaces.cli import cli, demo
from perdure.surfaces.cli.demo import Scene, Step, read_scene, run_scene

SCENES = sorted(path.stem for path in (Path(demo.__file__).parent / "scenes").glob("*.toml"))


def run(*words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run `perdure demo` for a person whose own folder is `folder`."""
    env = {**os.environ, "HOME": str(folder), "PERDURE_HOME": str(folder / "own"), "TMPDIR": str(folder / "tmp")}
    (folder / "tmp").mkdir(exist_ok=True)
    line = [sys.executable, "-m", "perdure.surfaces.cli", "demo", *words]
    return subprocess.run(line, env=env, cwd=folder, capture_output=True, text=True, timeout=200, check=False)


def test_the_list_has_a_line_for_each_scene(tmp_path: Path) -> None:
    done = run(folder=tmp_path)
    assert {"first-day", "start", "forget", "changes"} <= set(SCENES)
    assert done.returncode == 0 and all(f"{name} " in done.stdout for name in SCENES)


@pytest.mark.parametrize("name", SCENES)
def test_a_scene_runs_and_leaves_nothing_behind(name: str, tmp_path: Path) -> None:
    done = run(name, folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["tmp"] and not list((tmp_path / "tmp").glob("perdure-demo*"))
    assert str(tmp_path) not in done.stdout
    for step in read_scene(Path(demo.__file__).parent / f"scenes/{name}.toml").steps:
        assert all(words in done.stdout for words in step.shows)
        assert step.say in done.stdout


def test_every_scene_proves_something() -> None:
    for name in SCENES:
        steps = read_scene(Path(demo.__file__).parent / f"scenes/{name}.toml").steps
        assert any(step.shows for step in steps), name


@pytest.mark.parametrize(
    ("step", "fault"),
    [
        (Step("echo port 9090", shows=("8080",)), "The output lacks: 8080"),
        (Step("echo port 9090", hides=("9090",)), "The output holds: 9090"),
        (Step("false"), "The exit status is 1 instead of 0."),
    ],
)
def test_a_scene_ends_at_the_first_fault(step: Step, fault: str, tmp_path: Path) -> None:
    scene = Scene("A story.", (Step("echo first"), step, Step("echo never")))
    results = list(run_scene(scene, tmp_path))
    assert [result.fault for result in results] == ["", fault]


def test_a_false_story_exits_with_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "false.toml").write_text('line = "A false story."\n[[steps]]\nrun = "echo yes"\nshows = ["no"]\n')
    monkeypatch.setattr(demo, "_SCENES", tmp_path)
    with pytest.raises(SystemExit) as stop:
        cli.main(["demo", "false", "--keep", str(tmp_path / "kept")])
    assert stop.value.code == 1 and (tmp_path / "kept/.perdure").is_dir()


def test_an_unknown_scene_names_the_others(tmp_path: Path) -> None:
    done = run("frist-day", "--json", folder=tmp_path)
    assert done.returncode == 2 and "first-day" in json.loads(done.stdout)["error"]["message"]


def test_keep_leaves_a_home_that_can_be_searched(tmp_path: Path) -> None:
    assert run("changes", "--keep", str(tmp_path / "kept"), folder=tmp_path).returncode == 0
    home = tmp_path / "kept/.perdure"
    line = [sys.executable, "-m", "perdure.surfaces.cli", "search", "staging", "--home", str(home)]
    assert "9090" in subprocess.run(line, capture_output=True, text=True, check=True).stdout


def test_scene_without_its_package_is_left_out_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    (tmp_path / "far.toml").write_text('line = "Far."\nneeds = "nowhere_at_all"\n[[steps]]\nrun = "echo yes"\n')
    monkeypatch.setattr(demo, "_SCENES", tmp_path)
    with pytest.raises(SystemExit) as stop:
        cli.main(["demo", "--all"])
    assert stop.value.code == 0 and "far: left out, it needs more packages" in capsys.readouterr().out
    with pytest.raises(SystemExit) as stop:
        cli.main(["demo", "far"])
    assert stop.value.code == 2 and "perdure[nowhere_at_all]" in capsys.readouterr().err
