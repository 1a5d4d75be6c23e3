"""Where captures of one session belong when homes meet: a function of the set, whatever its order."""

import hashlib
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from perdure.archive import run_files
from perdure.archive.merge import arrange, is_consistent, is_set_aside, to_base_session, unite
from perdure.identity import make_run_id
from perdure.types import Run, Source

AT = datetime(2026, 1, 1, tzinfo=UTC)


def item(body, low=0, *, session="s", machine="m", at=AT, started=AT):
    source = Source("ada", "pi", session)
    run = Run(make_run_id(source, low, started), source, machine, "default", None, "c", low, low + len(body),
              hashlib.sha256(body).hexdigest(), started, started, at)  # fmt: skip
    return run, body


def forgotten(one, *offsets):
    ranges, body = run_files.forget_lines(*one, {offset: f"t{offset}" for offset in offsets})
    return replace(one[0], forgotten=ranges, stored_sha256=hashlib.sha256(body).hexdigest()), body


def shown(items):
    return sorted((run.source.session, run.from_offset, stored) for run, stored in items)


def test_captures_agree_on_common_bytes():
    """Lines at 0, 2 and 4. A shorter capture, another cut and a forgotten line agree; another line does not."""
    whole = item(b"a\nb\nc\n")
    assert (
        is_consistent(whole, item(b"a\n"))
        and is_consistent(whole, item(b"b\nc\nd\n", 2))
        and is_consistent(whole, item(b"z\n", 6))
    )
    assert is_consistent(whole, forgotten(item(b"a\nb\nc\n"), 2)) and is_consistent(
        forgotten(whole, 0), item(b"a\nb\n")
    )
    assert not is_consistent(whole, item(b"a\nx\nc\n")) and not is_consistent(whole, item(b"x\nc\n", 2))
    assert not is_consistent(whole, item(b"abc\nd\n"))
    assert not is_consistent(forgotten(whole, 0), item(b"aaa\nb\n"))  # what stood there ended elsewhere


def test_last_line_without_its_newline_agrees():
    assert is_consistent(item(b'{"a":1}'), item(b'{"a":1}\n{"b":2}\n'))
    assert is_consistent(item(b'\n{"b":2}\n', 7), item(b'{"a":1}\n{"b":2}\n'))


def test_union_keeps_the_longer_run_and_both_forgettings():
    short, long = item(b"a\nb\n"), item(b"a\nb\nc\n", at=AT + timedelta(days=1))
    assert unite(short, long) == unite(long, short) == long
    later = item(b"a\nb\n", at=AT + timedelta(days=1))
    assert unite(later, short) == short
    both = unite(forgotten(short, 0), forgotten(long, 2))
    assert both == unite(forgotten(long, 2), forgotten(short, 0))
    assert both[1] == b'{"forgotten":"t0"}\n{"forgotten":"t2"}\nc\n' and both[0].forgotten == ((0, 2), (2, 4))
    assert both[0].stored_sha256 == hashlib.sha256(both[1]).hexdigest()


def test_diverging_stream_becomes_its_own_source():
    """Two machines went on differently behind "a": the later stream, both of its runs, is a source of its own."""
    start = item(b"a\n")
    one = item(b"b\n", 2, machine="one", started=AT + timedelta(hours=1))
    two = [item(b"x\n", 2, machine="two", started=AT + timedelta(hours=2)),
           item(b"y\n", 4, machine="two", started=AT + timedelta(hours=3))]  # fmt: skip
    found = arrange([start, one, *two])
    assert shown(found)[:2] == [("s", 0, b"a\n"), ("s", 2, b"b\n")]
    (aside,) = {run.source.session for run, _ in found if is_set_aside(run.source)}
    assert to_base_session(aside) == "s" and shown(found)[2:] == [(aside, 2, b"x\n"), (aside, 4, b"y\n")]
    assert all(run.run_id == make_run_id(run.source, run.from_offset, run.started_at) for run, _ in found)


@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.integers(0, 4), st.integers(1, 4), st.integers(0, 3)), min_size=1, max_size=9
    ),
    st.randoms(use_true_random=False),
)
def test_arranged_in_any_order_and_in_parts(specs, dice):
    """Captures of three variants of a session (they part at line 0, 1 or 2) at any cut: shuffled, arranged one after
    the other or all at once, the result is the same; and every captured byte is still there.
    """
    variants = [b"abcdefgh", b"axcdefgh", b"abyyyygh"]
    items = []
    for variant, start, size, day in specs:
        body = b"".join(bytes([c]) + b"\n" for c in variants[variant][start : start + size])
        items.append(item(body, 2 * start, machine=f"m{variant}", started=AT + timedelta(hours=start, days=variant),
                          at=AT + timedelta(days=day)))  # fmt: skip
    at_once = arrange(items)
    shuffled = list(items)
    dice.shuffle(shuffled)
    assert shown(arrange(shuffled)) == shown(at_once)
    assert arrange(at_once) == at_once
    step = []
    for one in shuffled:
        step = arrange([*step, one])
    assert shown(step) == shown(at_once)
    for run, stored in items:
        assert any(
            kept.from_offset == run.from_offset and body.startswith(stored) for kept, body in at_once
        ), (run, at_once)  # fmt: skip
    for session in {run.source.session for run, _ in at_once}:
        row = [one for one in at_once if one[0].source.session == session]
        assert all(is_consistent(a, b) for a in row for b in row)
