"""When an album is whole, and what waits for it."""

from perdure.surfaces.telegram.albums import AlbumBuffer, group_albums
from perdure.surfaces.telegram.inbox import InboxItem


def make_item(update_id: int, album: str = "", *, chat: int = 1, user: int = 1, state: str = "new") -> InboxItem:
    message = {"media_group_id": album} if album else {}
    return InboxItem(update_id=update_id, chat=chat, user=user, message=message, state=state)  # type: ignore[arg-type]


def list_ids(groups: list[list[InboxItem]]) -> list[list[int]]:
    return [[item.update_id for item in group] for group in groups]


def test_an_album_is_whole_a_second_after_its_last_message() -> None:
    buffer = AlbumBuffer()
    assert not buffer.hold(make_item(1), 0.0) and buffer.is_empty
    assert buffer.hold(make_item(2, "a"), 10.0) and not buffer.is_empty
    assert buffer.release_whole(10.9) == []
    assert buffer.hold(make_item(3, "a"), 10.9)
    assert buffer.hold(make_item(4), 11.5), "what comes behind it waits, and does not make it wait longer"
    assert not buffer.hold(make_item(5, chat=2), 11.5)
    assert buffer.release_whole(11.8) == []
    assert list_ids(buffer.release_whole(11.95)) == [[2, 3], [4]] and buffer.is_empty


def test_albums_are_those_of_one_person_and_not_begun() -> None:
    items = [make_item(1, "a"), make_item(2, "a", user=2), make_item(3), make_item(4, "b"), make_item(5, "a")]
    assert list_ids(group_albums(items)) == [[1, 5], [2], [3], [4]]
    assert not AlbumBuffer().hold(make_item(1, "a", state="asked"), 0.0)
    assert list_ids(group_albums([make_item(1, "a", state="asked"), make_item(2, "a")])) == [[1], [2]]
