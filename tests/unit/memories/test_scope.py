"""Where a statement holds: in its project, unless its sentence says that it holds in all of them."""

import pytest

from perdure.memories.scope import is_said_everywhere


@pytest.mark.parametrize(
    "sentence",
    [
        "Always, everywhere: no console logs!", "In all my projects, use tabs.", "I prefer pnpm in every project.",
        "Use conventional commits across all of our repositories.", "No matter which project, answer in one line.",
        "Never push on Fridays, in any project.", "I use Helix wherever I work.", "Das gilt für alle meine Projekte.",
        "In jedem Projekt verwende ich Tabs.", "Immer und überall Tabs.", "Toujours et partout des tabulations.",
        "En todos mis proyectos uso tabuladores.", "所有项目都用空格", "すべてのプロジェクトでタブを使う",
    ],
)  # fmt: skip
def test_sentence_says_everywhere(sentence):
    assert is_said_everywhere(sentence)


@pytest.mark.parametrize(
    "sentence",
    [
        "no conosle logs!", "I always prefer tabs.", "Use snake_case everywhere.", "Install it globally.",
        "Use strict mode in all projects of this workspace.", "This is not for all projects.",
        "In all my Python projects I use ruff.", "In this project we use tabs.",
        "The project uses SQLite in all tests.",
        "Das ist nicht in allen Projekten so.", "",
    ],
)  # fmt: skip
def test_sentence_says_nothing_about_other_projects(sentence):
    assert not is_said_everywhere(sentence)
