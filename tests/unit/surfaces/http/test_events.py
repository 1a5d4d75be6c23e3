"""What those who listen are told of the journals."""

from datetime import UTC, datetime

import pytest

from perdure.archive import injections
from perdure.archive.journal import Journal
from perdure.surfaces.http.events import ActivityFeed

NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)


class Heard:
    """A hub to which ada listens."""

    def __init__(self):
        self.users, self.told = set(), []

    def publish(self, user, kind, said):
        self.told.append((user, kind, said.get("nonce")))


@pytest.mark.parametrize("kind", ["", injections.FLOOR])
def test_recall_is_an_event_and_a_floor_is_not(tmp_path, kind):
    hub, journal = Heard(), Journal(tmp_path / "archive" / "journal" / "ada", home=tmp_path)
    news = ActivityFeed(tmp_path, hub)
    news.add_listener("ada")
    hub.users.add("ada")
    data = {"runtime": "pi", "session": "s", "agent": "", "nonce": "n1", "digest": "d", "turns": [], "kind": kind}
    journal.append(injections.EVENT_TYPE, data, now=NOW)
    news.publish_changes()
    assert hub.told == ([] if kind else [("ada", "injected", "n1")])
