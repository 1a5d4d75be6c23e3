"""What a message of Telegram says, and whose words it is."""

import doctest

import pytest

from perdure.surfaces.telegram import incoming, waiting
from perdure.surfaces.telegram.incoming import list_files, make_allow_list, read_command, read_text
from perdure.surfaces.telegram.waiting import WaitingQuestion, shorten_labels


@pytest.mark.parametrize("module", [incoming, waiting])
def test_the_examples_of_the_code_are_true(module: object) -> None:
    assert doctest.testmod(module).failed == 0  # type: ignore[arg-type]


@pytest.mark.parametrize(("user", "chat", "is_allowed"), [
    (11, 11, True), (12, 12, False), (11, -5, True), (11, -6, False), (12, -5, False), (11, 12, False),
    ("11", 11, True), (None, None, False), (11, None, False),
])  # fmt: skip
def test_a_person_alone_or_in_an_allowed_group(user: object, chat: object, is_allowed: bool) -> None:
    assert make_allow_list(["11"], ["-5"]).allows(user, chat) is is_allowed


@pytest.mark.parametrize(("text", "command"), [
    ("/new", ("new", "")), ("/Recall  the port ", ("recall", "the port")), ("/mode@Perdure_Bot yolo", ("mode", "yolo")),
    ("/mode@other", None), ("/etc/hosts is empty", None), ("/ what", None), ("new", None), ("/", None), ("", None),
])  # fmt: skip
def test_what_is_a_command(text: str, command: object) -> None:
    assert read_command(text, "perdure_bot") == command


@pytest.mark.parametrize(
    "mark", [{"forward_origin": {"type": "user"}}, {"forward_date": 1}, {"forward_from": {"id": 1}}]
)
def test_forwarded_words_are_nobodys(mark: dict[str, object]) -> None:
    assert read_text({"text": "/mode yolo", **mark}) == ("", "/mode yolo")
    assert read_text({"caption": " mine "}) == ("mine", "")


def test_the_largest_photo_that_is_small_enough() -> None:
    sizes = [{"file_id": str(n), "width": n, "height": n, "file_size": n * 6_000_000} for n in (1, 0, 2)]
    assert [file.file_id for file in list_files({"photo": sizes})] == ["1"]
    assert list_files({"photo": []}) == list_files({}) == []


def test_a_question_takes_one_answer_of_one_person() -> None:
    question = WaitingQuestion(11, ("yes", "no"))
    data = question.build_keyboard()["inline_keyboard"][1][0]["callback_data"]
    assert len(data.encode()) <= 64
    for wrong in (f"{question.code}:2", f"{question.code}:-1", f"{question.code}:", "0000:1", "", "a:b:c"):
        assert not question.press(wrong, 11)
    assert not question.press(data, 12) and question.press(data, 11)
    assert not question.press(f"{question.code}:0", 11) and question.wait(0) == "no"
    assert WaitingQuestion(11, ()).wait(0) is None


def test_labels_stay_apart() -> None:
    labels = shorten_labels(["x" * 100] * 40)
    assert len(set(labels)) == 40 and max(map(len, labels)) <= 62
