"""Each example remembers: what was said in one session stands beside the message of the next, and is captured once."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import perdure
from rig.model_server import Answer, ModelServer

ROOT = Path(__file__).parents[2]
EXAMPLES = {
    "anthropic_loop": "ANTHROPIC",
    "openai_loop": "OPENAI",
    "pydantic_ai_agent": "OPENAI",
    "langgraph_agent": "OPENAI",
}
MESSAGE = "Our staging server listens on port 9090, please remember that."
KEPT = "The staging server is called quokka-3."
QUESTION = "Which port does the staging server listen on, and what is it called?"
FIRST = [Answer(calls=[("remember", {"text": KEPT})]), Answer("Noted, port 9090."), Answer("You are welcome.")]


def run(name: str, home: Path, answers: list[Answer], *messages: str) -> tuple[str, list[str]]:
    """(what an example prints, its requests as text)."""
    with ModelServer(answers=answers) as model:
        address = model.url if EXAMPLES[name] == "ANTHROPIC" else f"{model.url}/v1"
        env = {key: value for key, value in os.environ.items() if not key.endswith(("_PROXY", "_proxy"))}
        env |= {
            "PERDURE_HOME": str(home), "HOME": str(home.parent), f"{EXAMPLES[name]}_BASE_URL": address,
            f"{EXAMPLES[name]}_API_KEY": "none",
        }  # fmt: skip
        program = [sys.executable, str(ROOT / "examples" / f"{name}.py"), *messages]
        done = subprocess.run(program, env=env, capture_output=True, text=True, timeout=280, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout, [json.dumps(request.body, ensure_ascii=False) for request in model.requests]


@pytest.mark.slow
@pytest.mark.parametrize("name", EXAMPLES)
def test_second_session_recalls_a_fact_of_the_first(name, tmp_path):
    home = tmp_path / "home"
    said, asked = run(name, home, FIRST, MESSAGE, "Thanks!")
    assert said.splitlines() == ["Noted, port 9090.", "You are welcome."]
    assert len(asked) == 3 and KEPT in asked[1] and "Noted, port 9090." in asked[2]
    assert asked[2].count(MESSAGE) == 1, "the session's own turns are not recalled into it"

    said, asked = run(name, home, [Answer("9090, quokka-3.")], QUESTION)
    assert said == "9090, quokka-3.\n"
    (request,) = asked
    assert request.count(QUESTION) == 1 and "port 9090" in request and "quokka-3" in request
    assert request.index(QUESTION) < request.index("quokka-3"), "recall stands behind the message"

    with perdure.open(home) as opened:
        for words in ("Our staging server listens on port 9090", "Which port does the staging server listen on"):
            turns = [hit for hit in opened.search(f'"{words}"').hits if hit.role == "user"]
            assert len(turns) == 1, words
        lines = [path.read_text() for path in (home / "archive" / "runs").rglob("*.jsonl")]
        assert len(lines) == 3 and not any("perdure-recall" in line for line in lines)
        assert KEPT in {memory.text for memory in opened.memories.list_memories()}
