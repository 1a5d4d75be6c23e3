"""Messages that ask memory for nothing, in six languages, and messages like them that do."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from perdure.memories.routine import is_routine
from perdure.recall.plan import plan

ROUTINE = [
    "commit", "Commit and push!", "run the tests", "can you run the linter", "please fix the lint errors",
    "rename this variable", "undo the last change", "yes, do it", "looks good to me", "good morning",
    "thanks, that's great", "hmm, wait a moment", "bitte die Tests ausführen", "führe die Tests aus",
    "lösche diese Datei", "guten Morgen", "ja, mach weiter", "lance les tests", "supprime ce fichier",
    "d'accord, merci beaucoup", "ejecuta las pruebas", "borra este archivo", "¿qué tal?", "请运行测试", "提交代码",
    "好的，谢谢", "テストを実行してください", "ありがとうございます",
]  # fmt: skip
ASKING = [
    "run the tests of the tide server", "which tests?", "commit the herons", "rename foo to bar",
    "fix it like in PR 412", "delete src/app.py", "what does this function do?", "why did the build fail?",
    "start postgres", "good idea about the herons", "welche Tests?", "pourquoi ce test ?", "运行潮汐服务器的测试",
    "どのファイルですか", "",
]  # fmt: skip


@pytest.mark.parametrize("message", ROUTINE)
def test_routine_message_gives_no_query(message: str) -> None:
    assert is_routine(message)
    assert plan(message, now=datetime(2026, 1, 1, tzinfo=UTC)).queries == ()


@pytest.mark.parametrize("message", ASKING)
def test_message_with_a_word_of_its_own_is_not_routine(message: str) -> None:
    assert not is_routine(message)
