from datetime import UTC, datetime, timedelta, timezone

import pytest

from perdure.recall.times import find_times

NOW = datetime(2026, 3, 10, 15, 30, tzinfo=UTC)  # a Tuesday

CASES = [
    ("what broke yesterday?", "2026-03-09", "2026-03-10"),
    ("what broke last Tuesday?", "2026-03-03", "2026-03-04"),
    ("what did we say on Monday", "2026-03-09", "2026-03-10"),
    ("which bug came up last week?", "2026-03-02", "2026-03-09"),
    ("what did I plan this month", "2026-03-01", "2026-04-01"),
    ("the trip in May", "2025-05-01", "2025-06-01"),
    ("the trip in February", "2026-02-01", "2026-03-01"),
    ("the trip in May 2023", "2023-05-01", "2023-06-01"),
    ("what happened on 8 May 2023", "2023-05-08", "2023-05-09"),
    ("what happened on May 8th, 2023", "2023-05-08", "2023-05-09"),
    ("what happened on 31 July, 2023?", "2023-07-31", "2023-08-01"),
    ("the outage of 2025-11-04", "2025-11-04", "2025-11-05"),
    ("what did we decide three weeks ago", "2026-02-14", "2026-02-21"),
    ("what did we decide 2 months ago", "2026-01-01", "2026-02-01"),
    ("failures in the last 3 days", "2026-03-07", "2026-03-11"),
    ("everything since 2024", "2024-01-01", "2026-03-11"),
    ("everything since May 2025", "2025-05-01", "2026-03-11"),
    ("the port before May 2025", "1970-01-01", "2025-05-01"),
    ("Was war gestern?", "2026-03-09", "2026-03-10"),
    ("Was haben wir vor drei Wochen entschieden?", "2026-02-14", "2026-02-21"),
    ("Was war letzten Dienstag?", "2026-03-03", "2026-03-04"),
    ("Was haben wir im Mai geändert?", "2025-05-01", "2025-06-01"),
    ("am 03.02.2026", "2026-02-03", "2026-02-04"),
    ("le bug de la semaine dernière", "2026-03-02", "2026-03-09"),
    ("il y a trois semaines", "2026-02-14", "2026-02-21"),
    ("en mai 2024", "2024-05-01", "2024-06-01"),
    ("qué decidimos hace dos meses", "2026-01-01", "2026-02-01"),
    ("el martes pasado", "2026-03-03", "2026-03-04"),
    ("昨天我们讨论了什么", "2026-03-09", "2026-03-10"),
    ("上周二我们讨论了什么", "2026-03-03", "2026-03-04"),
    ("三天前的错误", "2026-03-07", "2026-03-08"),
    ("2023年5月8日的会议", "2023-05-08", "2023-05-09"),
    ("去年的预算", "2025-01-01", "2026-01-01"),
]


@pytest.mark.parametrize(("message", "since", "until"), CASES)
def test_a_window_by_the_calendar(message, since, until):
    windows = find_times(message, NOW).windows
    assert [(w.since_at.date().isoformat(), w.until_at.date().isoformat()) for w in windows] == [(since, until)]


@pytest.mark.parametrize(
    "message",
    ["I may go", "march on", "the second try", "version 3.11.4", "port 8080", "31 February 2025", "thank you", "天气"],
)
def test_text_without_a_time_gives_no_window(message):
    assert not [w for w in find_times(message, NOW).windows if (w.until_at - w.since_at).days < 28]


def test_days_follow_the_time_zone_of_now():
    """At half past midnight in Auckland it is still yesterday in London."""
    now = datetime(2026, 3, 10, 0, 30, tzinfo=timezone(timedelta(hours=13)))
    window = find_times("yesterday", now).windows[0]
    assert window.since_at.isoformat() == "2026-03-09T00:00:00+13:00"


def test_an_event_is_named_and_not_guessed():
    found = find_times("what changed since the release?", NOW)
    assert found.events == ("release",)
    assert found.windows == ()


def test_a_message_of_many_dates_gives_four_windows():
    assert len(find_times("8 May 2023, 9 May 2023, 10 May 2023, 11 May 2023, 12 May 2023", NOW).windows) == 4
