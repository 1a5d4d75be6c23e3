"""Reading JSON that is cut anywhere."""

import json

from hypothesis import given
from hypothesis import strategies as st

from perdure.formats.json_text import complete_json, read_objects

values = st.recursive(
    st.none() | st.integers(-9, 9) | st.text(max_size=5),
    lambda v: st.lists(v, max_size=3) | st.dictionaries(st.text(max_size=3), v, max_size=3),
)


def test_cut_object_is_completed():
    assert complete_json(b'{"a":{"b":"x}","c":[1,{"d":2},3') == {"a": {"b": "x}", "c": [1, {"d": 2}]}}
    assert complete_json(b'[{"role":"user","content":"lo') == [{"role": "user"}]
    assert complete_json(b'{"a":1}') == {"a": 1}
    assert complete_json(b'{"a":1}}') is None
    assert complete_json(b"words") is None


@given(st.dictionaries(st.text(max_size=3), values, max_size=4), st.data())
def test_every_prefix_of_an_object_is_an_object(value, data):
    raw = json.dumps(value).encode()
    cut = complete_json(raw[: data.draw(st.integers(1, len(raw)))])
    assert isinstance(cut, dict)
    assert set(cut) <= set(value)


def test_objects_skip_other_values():
    assert list(read_objects(b'[1]\n\nx\n{"a":1}\n{"b":{"c":2,"d":"cut')) == [{"a": 1}, {"b": {"c": 2}}]
