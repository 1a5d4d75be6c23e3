"""Images of captured turns: listed with the text around them, and found by it."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from perdure.surfaces.cli import cli

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"0" * 92).decode()
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}


def line(role: str, content, minute: int, session: str) -> bytes:
    row = {"type": role, "sessionId": session, "uuid": f"{session}-{minute}", "parentUuid": None, "cwd": "/w/harbour"}
    row |= {"timestamp": f"2026-03-01T09:{minute:02}:00.000Z", "message": {"role": role, "content": content}}
    return json.dumps(row).encode() + b"\n"


@pytest.fixture
def run(opened, tmp_path: Path, monkeypatch):
    home = opened("home")
    (home.path / "config.toml").write_text(f'user = "{home.user}"\n')
    chart = [
        line("user", "How high is the tide at Lorn Head?", 0, "tides"),
        line("assistant", [{"type": "tool_use", "id": "t1", "name": "Read", "input": {"file_path": "/w/chart.png"}}], 1,
             "tides"),
        line("user", [{"type": "tool_result", "tool_use_id": "t1", "content": [IMAGE, IMAGE]}], 2, "tides"),
        line("assistant", [{"type": "text", "text": "The chart shows 4.2 metres at noon."}], 3, "tides"),
    ]  # fmt: skip
    pasted = [
        line("user", [{"type": "text", "text": "The page looks broken, see the screenshot."}, IMAGE], 10, "page"),
        line("assistant", [{"type": "text", "text": "The sidebar overlaps. password: hunter2-Xk9"}], 11, "page"),
    ]
    for session, lines in (("tides", chart), ("page", pasted)):
        home.capture(b"".join(lines), runtime="claude-code", session=session, conversation=session, cwd="/w/harbour")
    home.close()
    monkeypatch.setenv("PERDURE_HOME", str(home.path))
    return lambda *words: CliRunner().invoke(cli, ["memories", "images", *words])


def test_images_are_listed_with_session_time_and_text(run) -> None:
    images = json.loads(run("--json").stdout)["result"]["images"]
    assert [image["session"] for image in images] == ["page", "tides"]
    pasted, chart = images
    assert pasted["labels"] == ["image/png 100 bytes"] and len(chart["labels"]) == 2
    assert pasted["text"] == "The page looks broken, see the screenshot." and pasted["before"] == ""
    assert chart["before"].startswith("read `/w/chart.png`") and chart["after"].startswith("The chart shows 4.2")
    assert pasted["stated_at"].startswith("2026-03-01T09:10") and pasted["project"] == "/w/harbour"
    shown = run().stdout
    assert "2026-03-01 09:10" in shown and "session tides" in shown and "with it The page looks broken" in shown


@pytest.mark.parametrize(
    ("words", "sessions"),
    [(("tide",), ["tides"]), (("CHART", "noon"), ["tides"]), (("chart.png",), ["tides"]), (("sidebar",), ["page"]),
     (("tide", "sidebar"), []), (("walrus",), [])],
)  # fmt: skip
def test_words_around_find_them(run, words, sessions) -> None:
    images = json.loads(run(*words, "--json").stdout)["result"]["images"]
    assert [image["session"] for image in images] == sessions
    assert sessions or "No image has these words" in run(*words).stdout


def test_secrets_around_are_masked(run) -> None:
    assert "hunter2" not in run("--json").stdout + run().stdout


def test_the_limit_says_that_there_are_more(run) -> None:
    answer = json.loads(run("-n", "1", "--json").stdout)["result"]
    assert len(answer["images"]) == 1 and answer["has_more"]
    assert "There are more" in run("-n", "1").stderr


def test_forgotten_images_are_gone(run, opened) -> None:
    first = json.loads(run("sidebar", "--json").stdout)["result"]["images"][0]
    CliRunner().invoke(cli, ["forget", first["turn_id"], "--yes"], catch_exceptions=False)
    assert json.loads(run("--json").stdout)["result"]["images"][0]["session"] == "tides"


def test_a_home_without_images_says_so(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path / "empty"))
    CliRunner().invoke(cli, ["remember", "The port is 8443."])
    assert "No images." in CliRunner().invoke(cli, ["memories", "images"]).stdout
