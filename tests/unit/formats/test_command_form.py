"""Commands as forms: equal for the same command, and none for what is not understood."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.formats.command_form import MAX_COMMAND_CHARS, read_commands, read_outcomes


def whole(line: str) -> str:
    ((form, _),) = read_commands(line)
    return form.whole


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("gh pr view 1556 --json title", "gh pr view 1562 --json title"),
        ("git show 0a1b2c3d4e", "git show 99887766aa"),
        ("run.sh --file /tmp/a.x7.md", "run.sh --file /tmp/b.y8.md"),
        ('git commit -m "Fix the port"', "git commit -m 'Say it again'"),
        ("make check 2>&1", "make check > out.txt"),
        ("CI=1 make check", "make check"),
        ("timeout 60 make check", "make check"),
    ],
)
def test_a_form_leaves_out_what_changes_from_call_to_call(one: str, other: str) -> None:
    assert whole(one) == whole(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("pytest tests", ".venv/bin/pytest tests"),
        ("pytest tests", "python -m pytest tests"),
        ("npm run build", "pnpm run build"),
        ("git diff a.py", "git diff -- a.py"),
        ("bd dolt status --short", "bd dolt status"),
        ("pytest tests/a.py", "pytest tests/b.py"),
    ],
)
def test_another_way_option_or_file_is_another_form(one: str, other: str) -> None:
    assert whole(one) != whole(other)


def test_the_program_is_found_behind_the_words_that_run_it() -> None:
    lines = (
        "uv run pytest -q",
        ".venv/bin/python -m pytest -q",
        "npx tsc",
        "./scripts/go.sh x",
        "bash scripts/go.sh x",
    )
    forms = [form for line in lines for form, _ in read_commands(line)]
    assert [form.program for form in forms] == ["pytest", "pytest", "tsc", "go.sh", "go.sh"]
    assert [form.run_as for form in forms][:3] == ["uv run pytest", ".venv/bin/python -m pytest", "npx tsc"]


@pytest.mark.parametrize(
    "line",
    [
        "for f in *; do make $f; done", "make <<EOF\nx\nEOF", "make $(cat x)", "make `cat x`", "make 'x", "make (x)",
        "x" * (MAX_COMMAND_CHARS + 1), "a;b;c;d;e;f;g;h;i",
    ],
)  # fmt: skip
def test_a_line_that_is_not_understood_has_no_form(line: str) -> None:
    assert read_commands(line) == ()


def test_only_a_line_that_shows_its_status_has_outcomes() -> None:
    assert [form.program for form in read_outcomes("cd src && make lint && make test")] == ["make", "make"]
    for line in ("make | tail", "make; ls", "make || true", "make & wait"):
        assert read_outcomes(line) == ()


def test_a_look_is_a_probe_and_a_test_is_none() -> None:
    probes = ("command -v beads", "git rev-parse HEAD", "grep x a.py", "sudo ls /root")
    assert all(form.is_probe for line in probes for form, _ in read_commands(line))
    assert not any(form.is_probe for line in ("pytest", "git push") for form, _ in read_commands(line))


@given(st.text(alphabet=st.sampled_from("ab-/='\"\\ \n;|&<>()$`#12."), max_size=60))
def test_any_line_is_read_or_left(line: str) -> None:
    for form, operator in read_commands(line):
        assert form.text in line.strip() and form.program != " " and operator in ("", "&&", "||", "|", "|&", ";", "&")
