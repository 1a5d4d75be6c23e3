"""Models end to end: `perdure models` against a scripted endpoint and the real small model, caps, and none at all."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import perdure
from perdure.errors import BadAnswer, ModelFault
from perdure.models.chat import Chat, ChatMessage
from perdure.surfaces.cli import cli
from perdure.testing import ScriptedChat
from rig import local_model
from rig.model_server import Answer, ModelServer

NOW = datetime(2026, 3, 1, tzinfo=UTC)
QUERIES: dict[str, Any] = {
    "type": "object",
    "properties": {"queries": {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 4}},
    "required": ["queries"],
    "additionalProperties": False,
}
ADA = json.dumps({"name": "Ada Lovelace", "place": "London", "year": 1815})
TABLE = """
[models.roles.miner]
provider = "openai"
model = "m-1"
url = "{url}/v1"
max_output_tokens = 1000
effort = "low"
{more}
"""


def table(home: Path, text: str) -> Path:
    home.mkdir(mode=0o700, exist_ok=True)
    (home / "config.toml").write_text(text)
    return home


def run(home: Path, *words: str, status: int = 0) -> Any:
    done = CliRunner().invoke(cli, [*words, "--home", str(home)])
    assert done.exit_code == status, done.output
    return json.loads(done.stdout) if "--json" in words else done.output


def test_without_any_everything_works_by_rules(tmp_path: Path) -> None:
    home = table(tmp_path / "home", "")
    said = run(home, "models")
    assert said.count("no model: rules do the work") == 4 and "rules do all the work" in said
    assert "the role miner has no model" in run(home, "models", "test", "miner", status=2)
    assert "give a role" in run(home, "models", "test", status=2)
    assert not (home / "run" / "meter.db").exists()


def test_a_model_is_listed_tested_and_timed(tmp_path: Path) -> None:
    prices = '[models.prices."m-1"]\ninput = 1000\noutput = 2000\n[models.caps]\nday_tokens = 2000\nmonth_money = 5'
    with ModelServer(answers=[Answer(ADA)]) as server:
        home = table(tmp_path / "home", TABLE.format(url=server.url, more=prices))
        said = run(home, "models", "test", "miner", "--json")["result"]
        assert said["value"] == json.loads(ADA) and said["name"] == "openai:m-1" and said["usage"]["n_output"] == 7
        assert "first words after" in run(home, "models", "time", "miner")
        listed = run(home, "models", "--json")["result"]
        miner = next(role for role in listed["roles"] if role["role"] == "miner")
        assert (miner["provider"], miner["has_key"], miner["missing"]) == ("openai", None, "")
        assert [(job["job"], job["effort"], job["n_calls"]) for job in listed["jobs"]] == [("models", "low", 2)]
        estimate = listed["estimates"]["openai:m-1"]
        assert (estimate["n_calls"], estimate["n_reported"]) == (2, listed["today"]["n_tokens"] - 14)
        assert estimate["error"] == round(estimate["n_estimated"] / estimate["n_reported"] - 1, 4)
        shown = run(home, "models")
        assert "miner openai:m-1, effort low: 2 calls" in shown and "input tokens estimated" in shown
        assert listed["today"]["n_calls"] == 2 and listed["today"]["n_unpriced"] == 0
        n_input = sum(len(json.dumps(request.body)) // 4 for request in server.requests)
        assert listed["today"]["money"] == pytest.approx((n_input * 1000 + 14 * 2000) / 1e6)
        assert listed["jobs"][0]["job"] == "models" and listed["caps"]["day_tokens"] == 2000
        assert "at most 2,000 tokens" in run(home, "models") and "(at most 5)" in run(home, "models")
        assert (miner["effort"], miner["window_tokens"], miner["warnings"]) == ("low", 128_000, [])
        assert "effort low, window 128,000" in shown and "counted in o200k, estimated" in shown
        assert listed["token_encoder"] == "o200k, estimated"


def test_answers_without_room_for_thoughts_are_warned_of(tmp_path: Path) -> None:
    """J24: before the first call by the settings, afterwards by what happened."""
    thoughts = [{"role": "assistant", "reasoning_content": "Hm."}]
    with ModelServer(answers=[Answer("", thoughts=thoughts, stop="length"), Answer(ADA)]) as server:
        home = table(tmp_path / "home", TABLE.format(url=server.url, more='thinking = "on"'))
        assert "thoughts count as output: at low effort set max_output_tokens to 4,000 or more" in run(home, "models")
        said = run(home, "models", "test", "miner", "--json", status=1)["error"]
        assert said["code"] == "bad-answer" and "reached its maximum length" in said["detail"]
        run(home, "models", "test", "miner")
    assert "models.roles.miner: 1 of 2 answers of this month were cut off by max_output" in run(home, "models")
    assert run(home, "models", "--json")["result"]["cut_answers"] == {"miner": {"n_calls": 2, "n_cut": 1}}


def test_spent_cap_stops_and_is_reported(tmp_path: Path) -> None:
    with ModelServer() as server:
        home = table(tmp_path / "home", TABLE.format(url=server.url, more="[models.caps]\nday_tokens = 999"))
        said = run(home, "models", "time", "miner", "--json", status=1)["error"]
        assert said["code"] == "budget-spent"
        assert said["detail"].startswith("models.caps.day_tokens: 0 of 999 spent, and this call can cost 1,0")
        assert "available again" in said["detail"] and server.requests == []


def test_refusal_quotes_the_provider(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERDURE_TEST_KEY", "sk-wrong-key")
    with ModelServer(answers=[Answer("invalid x-api-key: sk-wrong-key", status=401)]) as server:
        keyed = TABLE.format(url=server.url, more='key_env = "PERDURE_TEST_KEY"').replace("openai", "anthropic")
        home = table(tmp_path / "home", keyed)
        assert "key in PERDURE_TEST_KEY" in run(home, "models")
        said = run(home, "models", "test", "miner", "--json", status=1)["error"]
    assert said["code"] == "model-refused" and "127.0.0.1 answered 401: invalid x-api-key: [key]" in said["detail"]
    monkeypatch.delenv("PERDURE_TEST_KEY")
    assert "the environment has no PERDURE_TEST_KEY" in run(home, "models")


def test_a_key_is_kept_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERDURE_TEST_KEY", "sk-kept-nowhere")
    with ModelServer(answers=[Answer(ADA)]) as server:
        home = table(tmp_path / "home", TABLE.format(url=server.url, more='key_env = "PERDURE_TEST_KEY"'))
        run(home, "models", "test", "miner")
    kept = [path for path in home.rglob("*") if path.is_file() and b"sk-kept-nowhere" in path.read_bytes()]
    assert kept == [] and (home / "run" / "meter.db").exists()


def planned(chat: Chat | None, message: str) -> list[str]:
    """What a caller does: a helper's queries by schema, else the message as it is."""
    if chat is None:
        return [message]
    try:
        return list(chat.reply([ChatMessage("user", message)], schema=QUERIES).value["queries"])  # type: ignore[index]
    except ModelFault:
        return [message]


@pytest.mark.parametrize(
    "said", ["Sure! Here are the queries: port, tide", '{"queries": []}', '{"queries": "port"}', '{"que']
)
def test_invalid_json_of_a_helper_keeps_the_message(tmp_path: Path, said: str) -> None:
    """Feature R14: a clean ModelFault, which its caller turns into the fallback."""
    with ModelServer(answers=[Answer(said), Answer(said), Answer('{"queries": ["tide port"]}')]) as server:
        home = table(tmp_path / "home", TABLE.format(url=server.url, more="").replace("miner", "helper"))
        with perdure.open(home) as opened:
            helper = opened.chat("helper", job="recall")
            assert helper is not None
            with pytest.raises(BadAnswer):
                helper.reply([ChatMessage("user", "Which port?")], schema=QUERIES)
            assert planned(helper, "Which port?") == ["Which port?"]
            assert planned(helper, "Which port?") == ["tide port"]
            assert planned(opened.chat("miner", job="recall"), "Which port?") == ["Which port?"]


def test_other_model_changes_no_recall(tmp_path: Path, message: Callable[..., bytes]) -> None:
    """Feature R15: whatever adapter answers, recall's cues are the same bytes."""
    told = message("user", "The staging harbour listens on port 48642.") + message("user", "Bananas are fine.", 1)
    with perdure.open(tmp_path / "home") as home:
        home.capture(told, runtime="messages", session="s")
    seen = []
    with ModelServer() as server:
        for chats in ({}, {"resident": ScriptedChat(name="one:x")}, {"resident": ScriptedChat(name="two:y")}, None):
            more = TABLE.format(url=server.url, more="").replace("miner", "resident") if chats is None else ""
            (tmp_path / "home" / "config.toml").write_text(more)
            with perdure.open(tmp_path / "home", chats=chats) as home:
                resident = home.chat("resident", job="talk")
                assert (resident is None) == (chats == {})
                if resident is not None:
                    assert resident.reply([ChatMessage("user", "hello")]).text == "OK."
                found = home.recall("Which port does the staging harbour use?", now=NOW)
                seen.append(repr((found.cues, found.plan, found.silent)).encode())
    assert len(seen) == 4 and len(set(seen)) == 1 and b"48642" in seen[0]


def test_the_meter_survives_a_rebuild(tmp_path: Path, message: Callable[..., bytes]) -> None:
    with perdure.open(tmp_path / "home", chats={"miner": ScriptedChat()}) as home:
        home.capture(message("user", "Hello there."), runtime="messages", session="s")
        chat = home.chat("miner", job="mine")
        assert chat is not None
        chat.reply([ChatMessage("user", "x")])
        before = home.connections.roles().meter.read_spending("mine")
        home.upkeep.rebuild()
        assert home.connections.roles().meter.read_spending("mine") == before and before["job"].n_calls == 1
        with home.clone_for_thread(read_only=True) as other:
            again = other.chat("miner", job="mine")
            assert again is not None and again.reply([ChatMessage("user", "x")]).text == "OK."
        assert home.connections.roles().meter.read_spending("mine")["job"].n_calls == 2


def test_the_real_model_through_the_command(tmp_path: Path) -> None:
    pytest.importorskip("xllamacpp")
    try:
        path = local_model.file()
    except local_model.Missing as missing:
        pytest.skip(str(missing))
    home = table(
        tmp_path / "home", f'[models.roles.miner]\nprovider = "gguf"\nmodel = "{path}"\nmax_output_tokens = 80\n'
    )
    words = [sys.executable, "-m", "perdure.surfaces.cli", "models", "test", "miner", "--home", str(home), "--json"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    said = json.loads(done.stdout)["result"]
    assert set(said["value"]) == {"name", "place", "year"} and said["name"] == f"gguf:{path.name}" and done.stderr == ""
    assert run(home, "models", "--json")["result"]["today"]["money"] == 0
