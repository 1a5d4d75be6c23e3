"""What those who listen are told of the journals."""

from datetime import UTC, datetime

import pytest

from perdure.archive import injected
from perdure.archive.journal import Journal
from perdure.surfaces.http.news import News

NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)


class Heard:
    """A hub to which ada listens."""

    def __init__(self):
        self.users, self.told = set(), []

    def publish(self, user, kind, said):
        self.told.append((user, kind, said.get("nonce")))


@pytest.mark.parametrize("kind", ["", injected.FLOOR])
def test_a_recall_is_news_and_a_floor_is_none(tmp_path, kind):
    hub, journal = Heard(), Journal(tmp_path / "archive" / "journal" / "ada", home=tmp_path)
    news = News(tmp_path, hub)
    news.begin("ada")
    hub.users.add("ada")
    data = {"runtime": "pi", "session": "s", "agent": "", "nonce": "n1", "digest": "d", "turns": [], "kind": kind}
    journal.append(injected.TYPE, data, now=NOW)
    news.look()
    assert hub.told == ([] if kind else [("ada", "injected", "n1")])
