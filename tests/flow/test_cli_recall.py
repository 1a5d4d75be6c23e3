"""The commands of recall, as a person and as a program see them."""

import json

import pytest
from click.testing import CliRunner

from perdure.surfaces.cli import cli


@pytest.fixture
def run(tmp_path, message, monkeypatch):
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "home").mkdir(mode=0o700)
    (tmp_path / "home" / "config.toml").write_text("[memories]\nstated = false\n")
    source = tmp_path / "talk.jsonl"
    source.write_bytes(
        message("user", "The server listens on port 8417, as Ismet wanted.") + message("assistant", "Noted.", 1)
    )

    def run_(*arguments, stdin=None, status=0):
        result = CliRunner().invoke(cli, arguments, input=stdin)
        assert result.exit_code == status, result.output
        return result

    run_("import", str(source))
    return run_


def test_cue_is_shown_with_its_source_and_reason(run):
    shown = run("recall", "Which", "port", "does", "the", "server", "use?").stdout
    assert "port 8417" in shown and "because it contains your words: " in shown and "messages @" in shown
    assert "perdure show t" in shown


def test_recall_without_vectors_says_how_to_get_them(run):
    """Row X12."""
    assert "perdure embed" in run("recall", "Which port does the server use?").stderr
    assert "perdure embed" not in run("recall", "--mode", "keyword", "Which port does the server use?").stderr


def test_a_helper_that_fails_is_named(run, tmp_path):
    settings = '[models.roles.helper]\nprovider = "gguf"\nmodel = "/none.gguf"\n[memories]\nstated = false\n'
    (tmp_path / "home" / "config.toml").write_text(settings)
    done = run("recall", "Which port does the server use?")
    assert "perdure models test helper" in done.stderr and "port 8417" in done.stdout
    assert "perdure models test helper" not in run("recall", "--mode", "keyword", "Which port?").stderr


def test_silence_is_printed_with_its_reason(run):
    assert run("recall", "Which violin did Paganini play?").stdout.startswith("Nothing is recalled: none of its words")
    assert run("recall", "Which server does Paganini run in Genoa?").stdout.startswith(
        "Nothing is recalled: the best match is below"
    )


def test_json_output_holds_every_field(run):
    answer = json.loads(run("recall", "--json", "Which port does the server use?").stdout)["result"]
    assert answer["cues"][0]["text"].startswith("The server") and answer["silent"] is None
    assert {"turn_id", "run_id", "role", "stated_at", "machine", "why", "legs"} <= answer["cues"][0].keys()
    assert answer["plan"]["queries"] and answer["timings_ms"] and answer["n_tokens"] > 0


def test_why_not_and_standard_input(run):
    noted = json.loads(run("search", "--json", "noted").stdout)["result"]["hits"][0]["turn_id"]
    assert f"{noted}: " in run("recall", "-", "--why-not", noted, stdin="Who is Ismet?").stdout
    assert "It is cue" in run("recall", "which port", "--why-not", noted).stdout


def test_explain_shows_the_plan_and_the_times(run):
    shown = run("recall", "--explain", "What did Ismet want yesterday?").stdout
    assert "names:" in shown and "times:" in shown and "candidates" in shown


def test_recall_without_a_message_gives_advice(run):
    assert "give a message" in run("recall", status=2).stderr


def test_eval_of_the_shipped_questions(run):
    figures = json.loads(run("eval", "--keyword", "--json").stdout)["result"]
    assert figures["systems"]["recall"]["R@10"] > figures["systems"]["keyword only"]["R@10"]
    assert "R@10" in run("eval", "--keyword").stdout


def test_eval_measures_contradictions(run):
    figures = json.loads(run("eval", "--contradictions", "--keyword", "--json").stdout)["result"]
    assert figures["recall"]["now"]["current"] > figures["recall"]["now"]["misled"]
    assert "misled" in run("eval", "--contradictions", "--keyword").stdout


def test_eval_refuses_a_path_without_a_dataset(run, tmp_path):
    assert "neither a folder" in run("eval", str(tmp_path), status=2).stderr
