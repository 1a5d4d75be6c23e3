"""What a process loads before it has anything to do with it: each of these costs every hook and every recall."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import perdure
from perdure.testing import FakeEmbedder
from perdure.types import Origin


def loaded(code: str, *arguments: str) -> set[str]:
    """The modules that a fresh process holds after this."""
    words = [sys.executable, "-c", f"import sys\n{code}\nprint(*sys.modules)", *arguments]
    return set(subprocess.run(words, capture_output=True, text=True, check=True).stdout.split("\n")[-2].split())


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("start") / "home"
    with perdure.open(path) as home:
        home.capture(b'{"role": "user", "content": "We chose port 8417."}\n', runtime="messages", session="s")
        home.upkeep.catch_up()  # what is stated is kept: the rules are loaded once for what is new
        assert home.captures.refusal(Origin("messages", "s", "s")) is None
    return str(path)


HEAVY = {"numpy", "onnxruntime", "rich", "click", "subprocess", "socket", "tomllib", "tarfile", "html"}
SDKS = {"anthropic", "openai", "xllamacpp", "httpx2", "pydantic", "perdure.models.sdk_calls", "ssl"}
FORMATS = {f"perdure.formats.{name}" for name in ("claude_code", "codex", "detection", "messages", "pi")}


def test_opening_a_home_loads_no_models_formats_or_verification() -> None:
    held = loaded("import perdure.home")
    assert "perdure.home" in held
    assert (
        held
        & (
            HEAVY
            | SDKS
            | FORMATS
            | {"perdure.models.roles", "perdure.archive.verify", "perdure.index.rebuild", "perdure.index.projection"}
        )
        == set()
    )


def test_a_recall_by_words_loads_no_model_and_no_format(place: str) -> None:
    code = "import perdure\nhome = perdure.open(sys.argv[1])\nprint(home.recall('which port?', mode='keyword').cues)"
    assert (
        loaded(code, place) & (HEAVY | SDKS | FORMATS | {"perdure.index.home_vectors", "perdure.index.projection"})
        == set()
    )


def test_a_recall_by_words_beside_vectors_loads_no_numpy(tmp_path: Path) -> None:
    with perdure.open(tmp_path / "home", embedder=FakeEmbedder()) as home:
        home.capture(b'{"role": "user", "content": "We chose port 8417."}\n', runtime="messages", session="s")
        home.upkeep.catch_up()
        assert home.upkeep.embed().n_done
    code = "import perdure\nhome = perdure.open(sys.argv[1])\nprint(home.recall('which port?', mode='keyword').cues)"
    assert loaded(code, str(tmp_path / "home")) & {"numpy", "perdure.index.home_vectors"} == set()


def test_command_loads_no_home_until_it_needs_one() -> None:
    held = loaded("import perdure.surfaces.cli.recall")
    unneeded = {"perdure.home", "perdure.config", "perdure.recall.judge", "numpy", "apsw", "rich.progress"}
    assert "perdure.surfaces.cli.common" in held and held & unneeded == set()


def test_help_and_hooks_load_no_models() -> None:
    helped = "from perdure.surfaces.cli import cli\ncli.main(['--help'], standalone_mode=False)"
    hooked = "import perdure.capture.hook"
    for code in (helped, hooked):
        held = loaded(code)
        assert {name for name in held if name.startswith("perdure.models")} | (held & SDKS) == set()


def test_naming_a_model_loads_no_sdk_before_a_call(place: str) -> None:
    code = (
        "import perdure\nfrom perdure.config import RoleConfig\nfrom perdure.models.roles import Roles, _make_chat\n"
        "home = perdure.open(sys.argv[1])\nassert home.chat('miner', job='x') is None\n"
        "for provider in ('anthropic', 'openai', 'gguf'):\n"
        "    print(_make_chat('miner', RoleConfig(provider, 'm', 'http://127.0.0.1:9')).name)"
    )
    held = loaded(code, place)
    assert "perdure.models.gguf" in held and held & (SDKS - {"ssl", "perdure.models.sdk_calls"}) == set()


def test_an_editor_is_answered_before_a_home_or_the_protocols_package_is_loaded() -> None:
    greeting = "import perdure.surfaces.cli.acp, perdure.surfaces.acp.greeting, perdure.surfaces.acp.stdio"
    assert loaded(greeting) & (HEAVY | SDKS | {"acp", "asyncio", "perdure.home", "perdure.config"}) <= {"click"}


def test_no_other_command_loads_the_protocol_of_editors() -> None:
    code = (
        "import importlib\nfrom perdure.surfaces.cli import _COMMANDS\n"
        "for module, _ in _COMMANDS.values():\n    importlib.import_module(f'perdure.surfaces.cli.{module}')"
    )
    assert not {name for name in loaded(code) if name.partition(".")[0] == "acp"}
