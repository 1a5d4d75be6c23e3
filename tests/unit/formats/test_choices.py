"""What a person chose instead of what: the forms that count, and those that do not."""

from __future__ import annotations

import pytest

from perdure.formats.choices import find_choices, list_terms
from perdure.formats.command_form import read_outcomes


@pytest.mark.parametrize(
    ("sentence", "chosen", "refused"),
    [
        ("Use pnpm, not npm.", "pnpm", "npm"),
        ("please run `make unit` instead of pytest here", "make unit", "pytest"),
        ("never run git stash without asking", "", "git stash"),
        ("Don't use sudo.", "", "sudo"),
        ("stop using `npm run dev`", "", "npm run dev"),
        ("we moved from port 8080 to 8443 because of the proxy", "8443", "8080"),
        ("we switched the linter from flake8 to ruff", "ruff", "flake8"),
        ("I renamed the branch from master to main", "main", "master"),
        ("Instead of docker-compose use podman.", "podman", "docker-compose"),
        ("I replaced yarn with bun in this repo", "bun", "yarn"),
    ],
)
def test_plain_form_is_a_choice(sentence, chosen, refused):
    assert [tuple(choice) for choice in find_choices(sentence)] == [(chosen, refused)]


@pytest.mark.parametrize(
    "sentence",
    [
        "Don't run the tests now.",
        "Don't use it.",
        "never use this approach for anything that a person reads",
        "The dashboard is complete, not just the core.",
        "It moved from the left to the right.",
        "do not use that many words",
        "Use Python.",
    ],
)
def test_other_sentence_is_none(sentence):
    assert list(find_choices(sentence)) == []


def test_no_text_is_slow_or_raises():
    for text in (
        "use " * 2_000,
        "use a, not " * 500,
        "never use `" + "x" * 5_000,
        "moved from " + "a " * 3_000 + "to b",
    ):
        list(find_choices(text))


def test_terms_of_a_command_hold_its_numbers_and_not_its_long_texts():
    (form,) = read_outcomes('git commit -m "use npm run dev, not 8080"')
    assert set(list_terms(form)) == {"git", "git commit", "commit", "-m"}
    (form,) = read_outcomes("curl localhost:8080/health")
    assert "8080" in list_terms(form)
