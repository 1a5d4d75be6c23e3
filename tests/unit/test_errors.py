"""What an error says: the thing it is about and what to do, once."""

from perdure.errors import EditRefused, NotFound, ToolError, UsageError


def test_error_with_its_own_advice_gets_no_general_advice():
    assert str(UsageError("say what to search for")) == "say what to search for"
    assert str(ToolError("no such file")) == "no such file"
    assert str(UsageError()) == "The command or its options are not valid. See `perdure --help`."


def test_other_errors_name_the_thing_and_give_advice():
    assert str(NotFound("abc")).startswith("abc: Not found")
    assert str(EditRefused("rules.md")).startswith("rules.md: This edit of the floor is not allowed")
