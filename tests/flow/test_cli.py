"""The command line as people and programs meet it: layouts, envelopes, exit statuses, start-up."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from perdure.home import open_home
from perdure.surfaces.cli import _COMMANDS
from perdure.surfaces.cli.search import draw_trees
from rig.terminal import start_perdure

ROOT = Path(__file__).parents[2]
SAMPLES = ROOT / "src/perdure/samples"
GOLDEN = ROOT / "tests/golden"


def run(home: Path, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PERDURE_HOME": str(home), "HOME": str(home.parent), "TZ": "UTC", "COLUMNS": "100"}
    program = [sys.executable, "-m", "perdure.surfaces.cli", *words]
    return subprocess.run(program, env=env, capture_output=True, text=True, input=stdin, timeout=120, check=False)


def answer(home: Path, *words: str) -> dict[str, Any]:
    done = run(home, *words, "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("cli") / "home"
    place.mkdir(mode=0o700)
    (place / "config.toml").write_text('machine = "laptop"\nuser = "mira"\n')
    assert run(place, "import", str(SAMPLES)).returncode == 0
    return place


def golden(name: str, text: str) -> None:
    """Compare with tests/golden; UPDATE_GOLDEN=1 writes the file anew."""
    path = GOLDEN / name
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


def test_search_groups_by_conversation_with_role_and_snippet(home: Path) -> None:
    output = run(home, "search", "spring", "tide", "port", "--limit", "3").stdout
    golden("search.txt", re.sub(r"\d+ \w+ ago|just now", "<age>", output))


def test_show_prints_a_turn_with_its_context(home: Path) -> None:
    hit = answer(home, "search", "spring tide", "--role", "user", "--limit", "1")["result"]["hits"][0]["turn_id"]
    golden("show.txt", run(home, "show", hit[:9], "--context", "1").stdout)


def test_tree_draws_the_badges_and_the_nesting(home: Path) -> None:
    with open_home(home) as opened:
        lines = draw_trees(opened.runs.forest(), datetime(2026, 11, 22, 2, tzinfo=UTC), fold=True)
        golden("tree.txt", "".join(line.plain + "\n" for line in lines))


ANSWERED = (
    "search port",
    "tree",
    "status",
    "doctor",
    "verify",
    "rebuild",
    "pack --idle-days 0",
    "show 74d8bf06",
    "forget --query zzz-nothing --dry-run",
    f"import {SAMPLES}",
)


@pytest.mark.parametrize("words", [tuple(line.split()) for line in ANSWERED])
def test_every_answer_for_programs_has_one_shape(home: Path, words: tuple[str, ...]) -> None:
    found = answer(home, *words)
    assert set(found) == {"ok", "command", "result", "next_actions", "_links"}
    assert found["ok"] is True
    assert found["command"] == words[0]
    assert all(set(action) == {"command", "why"} for action in found["next_actions"])


@pytest.mark.parametrize(
    ("words", "status", "code"),
    [
        (("show", "tzzzzzzzz"), 4, "not-found"),
        (("show", "abc"), 2, "usage-error"),
        (("search",), 2, "usage-error"),
        (("search", "x", "--since", "someday"), 2, "usage-error"),
        (("import", "/no/such/place"), 2, "usage-error"),
        (("forget", "--query", "port"), 2, "usage-error"),
        (("import", "--format", "cobol"), 2, "usage-error"),
    ],
)
def test_errors_have_a_code_and_an_exit_status(home: Path, words: tuple[str, ...], status: int, code: str) -> None:
    done = run(home, *words, "--json")
    assert done.returncode == status
    error = json.loads(done.stdout)["error"]
    assert error["code"] == code
    people = run(home, *words)
    assert people.returncode == status
    assert people.stderr.startswith("perdure: ")
    assert people.stdout == "" or "forget" in words


def test_missing_home_gives_advice(tmp_path: Path) -> None:
    done = run(tmp_path / "none", "search", "x")
    assert done.returncode == 3
    assert "perdure import" in done.stderr
    assert not (tmp_path / "none").exists()


def test_an_unknown_command_suggests_one() -> None:
    done = run(Path("/nonexistent/home"), "sea")
    assert done.returncode == 2
    assert "search" in done.stderr


def test_no_colours_without_a_terminal(home: Path) -> None:
    assert "\x1b[" not in run(home, "search", "port").stdout
    assert "\x1b[" not in run(home, "tree").stdout


def test_deleting_asks_and_only_a_terminal_can_answer(home: Path) -> None:
    done = run(home, "forget", "--query", "Grafana", stdin="y\n")
    assert done.returncode == 2
    assert "--yes" in done.stderr
    assert answer(home, "search", "Grafana")["result"]["hits"]


def test_import_names_refused_files(home: Path, tmp_path: Path) -> None:
    (tmp_path / "list.jsonl").write_text('{"nothing": "that is known"}\n')
    found = answer(home, "import", str(tmp_path))
    assert [item["path"] for item in found["result"]["refused"]] == [str(tmp_path / "list.jsonl")]


def test_empty_import_is_reported(tmp_path: Path) -> None:
    done = run(tmp_path / "home", "import")
    assert done.returncode == 0
    assert "No transcripts" in done.stdout


def test_raw_prints_the_captured_bytes(home: Path) -> None:
    sample = next((SAMPLES / "codex").rglob("*.jsonl"))
    run_id = next(item["run_id"] for item in answer(home, "tree", "--runtime", "codex")["result"]["runs"])
    done = run(home, "show", run_id, "--raw")
    assert done.stdout.encode() == sample.read_bytes()


def test_secrets_are_masked_in_every_output(home: Path) -> None:
    """The sample's fake key begins with sk-ant-api03-FAKE0 and stands in four places of one transcript."""
    for words in (("search", "ANTHROPIC_API_KEY"), ("show", "74d8bf06", "--full"), ("tree",)):
        for extra in ((), ("--json",)):
            done = run(home, *words, *extra)
            assert done.returncode == 0
            assert "FAKE0" not in done.stdout
    assert "[secret:anthropic]" in run(home, "show", "74d8bf06", "--full").stdout


def test_help_and_import_load_few_modules() -> None:
    """What is not imported costs nothing: no SQLite, no rich, no msgspec, no formats before a command runs, and before
    the resident home is asked.
    """
    for code in ("import perdure", "import perdure.surfaces.cli", "import perdure.surfaces.cli.recall"):
        listing = f"import sys\n{code}\nprint('\\n'.join(sys.modules))"
        done = subprocess.run([sys.executable, "-c", listing], capture_output=True, text=True, check=True)
        heavy = {"apsw", "rich", "msgspec", "hashlib", "perdure.home", "perdure.formats", "perdure.index"}
        assert heavy.isdisjoint(done.stdout.split())


def test_every_command_has_help_with_an_example() -> None:
    for name in _COMMANDS:
        done = run(Path("/nonexistent/home"), name, "--help")
        assert done.returncode == 0, name
        assert "perdure " + name in done.stdout.split("Examples")[-1], name


def test_completion_completes(home: Path) -> None:
    env = {**os.environ, "_PERDURE_COMPLETE": "bash_complete", "COMP_WORDS": "perdure se", "COMP_CWORD": "1"}
    done = subprocess.run(
        [Path(sys.executable).with_name("perdure")], env=env, capture_output=True, text=True, check=False
    )
    assert "plain,search" in done.stdout


def test_context_and_recall_are_of_the_agent_that_is_named(tmp_path: Path) -> None:
    """W28: a memory of one agent is recalled for that agent alone."""
    place = tmp_path / "home"
    with open_home(place, agent="mira") as opened:
        opened.remember("The harbour light is green")
        opened.floor.write("profile.md", "Ann sails.\n")
    message = "which colour is the harbour light?"
    for agent, n_cues in (("mira", 1), ("ada", 0)):
        assert len(answer(place, "recall", message, "--agent", agent)["result"]["cues"]) == n_cues
        context = answer(place, "context", message, "--agent", agent)["result"]
        assert len(context["cues"]) == n_cues
        assert ("profile" in [part["name"] for part in context["parts"]]) == bool(n_cues)


@pytest.mark.index_file("it damages the file")
def test_status_reports_damaged_pages_of_the_index(tmp_path: Path) -> None:
    """W28: it opens, and a page of it cannot be read."""
    place = tmp_path / "home"
    assert run(place, "import", str(SAMPLES)).returncode == 0
    path = (place / "index.db").resolve()
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(8192)
        file.write(os.urandom(size - 8192))
    done = run(place, "status")
    assert done.returncode == 1 and "perdure rebuild" in done.stdout and done.stderr == ""


def test_a_missing_key_is_named_with_how_to_set_it(tmp_path: Path) -> None:
    settings = '[models.roles.resident]\nprovider = "anthropic"\nmodel = "m"\nkey_env = "PERDURE_TEST_NO_KEY"\n'
    (tmp_path / "home").mkdir(mode=0o700)
    (tmp_path / "home" / "config.toml").write_text(settings)
    done = run(tmp_path / "home", "ask", "hello")
    assert done.returncode == 3 and "the environment has no PERDURE_TEST_NO_KEY: Set this variable" in done.stderr
    assert "config.toml" not in done.stderr


@pytest.mark.parametrize("words", ["status", "search port", "import samples"])
def test_a_file_is_no_home(tmp_path: Path, words: str) -> None:
    (tmp_path / "file").write_text("x")
    done = run(tmp_path / "file", *words.split())
    assert (done.returncode, done.stderr) == (2, f"perdure: {tmp_path / 'file'} is not a folder\n")


def test_what_the_system_refuses_is_reported_in_one_line(home: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    place = tmp_path / "file" / "copy"
    done = run(home, "export", str(place))
    assert done.returncode == 1 and done.stderr.startswith(f"perdure: {place}: Not a directory: The operating system")
    assert len(done.stderr.splitlines()) == 1


def test_a_terminal_without_unicode_gets_other_characters(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    for words in (["tree"], ["search", "port"], ["doctor"], ["search", "\udcff"]):
        assert "Traceback" not in run(home, *words).stderr


def test_a_filter_that_fits_nothing_is_named(home: Path) -> None:
    done = run(home, "search", "port", "--project", "nope", "--runtime", "claude", "--machine", "laptop")
    assert done.stdout == "Nothing found. No turn here has the project nope or the runtime claude.\n"
    assert run(home, "search", "port", "--role", "usr").returncode == 2
    assert run(home, "search", "port", "--kind", "calls").returncode == 2
    assert run(home, "search", "zzz-nothing", "--runtime", "pi").stdout == "Nothing found.\n"
    assert run(home, "tree", "--runtime", "claude").stdout == "No run fits these limits.\n"


def test_an_empty_home_says_how_to_begin(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir(mode=0o700)
    status = run(tmp_path / "home", "status")
    assert status.returncode == 0 and "none yet; the first import creates it" in status.stdout
    done = run(tmp_path / "home", "search", "port")
    begin = "Nothing is captured here yet. `perdure start` imports the sessions of your agents.\n"
    assert (done.stdout, done.stderr) == (begin, "")


@pytest.mark.parametrize("word", ["init", "setup", "help", "list", "find", "add", "delete"])
def test_words_of_other_programs_lead_to_a_command(word: str) -> None:
    done = run(Path("/nowhere"), word)
    assert done.returncode == 2 and "Did you mean" in done.stderr


def test_why_names_only_what_records_a_recall(home: Path) -> None:
    assert run(home, "context", "port").returncode == 0
    done = run(home, "why")
    assert done.returncode == 4 and "perdure context" not in done.stderr


def test_a_file_that_is_no_backup_is_named(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("x")
    done = run(tmp_path / "home", "restore", str(tmp_path / "notes.txt"), "--home", str(tmp_path / "new"))
    assert done.returncode == 1 and "notes.txt is not a complete backup" in done.stderr
    assert "perdure verify" not in done.stderr and "another copy" in done.stderr


def test_context_of_an_empty_floor_says_how_to_write_it(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir(mode=0o700)
    output = run(tmp_path / "home", "context", "port").stdout
    assert output.startswith("══ nothing stands before every message yet: `perdure floor edit profile` writes it ══\n")


def test_mcp_at_a_terminal_says_who_runs_it(tmp_path: Path) -> None:
    pytest.importorskip("mcp")
    with start_perdure(tmp_path / "home", "mcp", cwd=tmp_path) as terminal:
        terminal.wait("A client runs this command")
        terminal.send("\x04")
        assert terminal.wait_end() == 0
