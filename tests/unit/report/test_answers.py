from datetime import UTC, datetime

from perdure import log
from perdure.report.answers import find_quantile, read_answers, summarise_answers


def test_answers_are_counted_by_how_they_came_out():
    def line(outcome, took_ms, kind="prompt"):
        return {"what": "answered", "kind": kind, "outcome": outcome, "took_ms": took_ms}

    lines = [
        line("injected", 10),
        line("silent", 30),
        line("skipped", 0),
        line("failed", 900),
        line("reset", 1, "start"),
    ]
    assert summarise_answers(lines) == {
        "outcomes": {"failed": 1, "injected": 1, "silent": 1, "skipped": 1}, "p50_ms": 10, "p95_ms": 30
    }  # fmt: skip


def test_a_rank_is_the_value_below_which_the_share_lies():
    """Of 1 to 20, 95 % lie at or below 19."""
    assert find_quantile(list(range(1, 21)), 0.95) == 19
    assert find_quantile([7.0], 0.95) == 7.0


# whose answers --------------------------------------------------------------------------------------------------


def test_answers_are_listed_for_their_own_user(tmp_path):
    log.append_entry(tmp_path, "answered", user="ada", kind="prompt", outcome="silent", took_ms=3.5)
    log.append_entry(tmp_path, "answered", user="bob", kind="prompt", outcome="injected", took_ms=9)
    log.append_entry(
        tmp_path, "answered", kind="prompt", outcome="injected", took_ms=7
    )  # as an earlier version noted it
    log.append_entry(tmp_path, "answered", user="ada", kind="start", outcome="reset", took_ms=1)
    log.append_entry(tmp_path, "captured", user="ada", kind="prompt", note="answered")
    with log.to_log_path(tmp_path).open("ab") as file:
        file.write(b'{"what": "answered", \xff\n"answered"\n')
    assert [line.took_ms for line in read_answers(tmp_path, "ada")] == [3.5]
    assert [line.took_ms for line in read_answers(tmp_path, "ada", is_admin=True)] == [3.5, 7]
    assert [line.took_ms for line in read_answers(tmp_path, "eve")] == []


def test_lines_of_before_are_passed_over(tmp_path):
    """A line that something else wrote is looked into, in whatever order it says what it says."""
    log.to_log_path(tmp_path).parent.mkdir()
    log.to_log_path(tmp_path).write_text(
        '{"at": "2026-01-01T00:00:00.000+00:00", "what": "answered", "n": 1}\n'
        '{"what": "answered", "at": "2026-01-01T00:00:00.000+00:00", "n": 2}\n'
        '{"what": "answered", "at": "2026-01-03T00:00:00.000+00:00", "n": 3}\n'
        '{"at": "2026-01-02T00:00:00.000+00:00", "what": "answered", "n": 4}\n'
    )
    since_at = datetime(2026, 1, 2, tzinfo=UTC)
    assert [line["n"] for line in log.read_entries(tmp_path, entry_type="answered", since_at=since_at)] == [3, 4]
    assert [line["n"] for line in log.read_entries(tmp_path)] == [1, 2, 3, 4]
