"""The first screen of a chat waits for nothing heavy, and other commands load nothing of a chat."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("numpy", "onnxruntime", "apsw", "openai", "anthropic", "xllamacpp", "perdure.home", "perdure.session.session")


def list_loaded(code: str, names: tuple[str, ...]) -> list[str]:
    program = f"import sys\n{code}\nprint(*[name for name in {names!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    return done.stdout.split()


def test_what_a_chat_shows_first_loads_no_home_and_no_model() -> None:
    modules = ("cli.chat", "chat.input_line", "chat.session_thread", "chat.terminal_chat")
    assert list_loaded("\n".join(f"import perdure.surfaces.{name}" for name in modules), HEAVY) == []


@pytest.mark.parametrize("module", ["cli", "cli.chat", "cli.ask"])
def test_the_command_line_loads_no_prompt(module: str) -> None:
    assert list_loaded(f"import perdure.surfaces.{module}", ("prompt_toolkit", "rich", *HEAVY)) == []
