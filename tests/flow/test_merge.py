"""Homes that merge in any order end the same, and nothing is lost, doubled or brought back."""

import itertools
import shutil

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import perdure
from perdure.errors import HomeMissing, NewerFormat


def take(home, *, session, data, low=0, **how):
    return home.capture(data, runtime="messages", session=session, from_offset=low, **how)


def merged(tmp_path, sources, order, name):
    """A new home that took the sources in this order, and its digest."""
    with perdure.open(tmp_path / name, user="ada") as home:
        for n in order:
            home.upkeep.merge(sources[n].path)
        assert home.upkeep.verify().ok
        digest = home.upkeep.digest()
        assert home.upkeep.rebuild().same_digest
        return digest


def all_orders(tmp_path, *sources):
    """The one digest that every order ends with, checked for new homes and for each home that takes the others."""
    orders = list(itertools.permutations(range(len(sources))))
    digests = {merged(tmp_path, sources, order, f"m{n}") for n, order in enumerate(orders)}
    for n, source in enumerate(sources):
        shutil.copytree(source.path, tmp_path / f"c{n}", symlinks=True)
        with perdure.open(tmp_path / f"c{n}", user="ada") as home:
            for m in (*range(n + 1, len(sources)), *range(n)):
                home.upkeep.merge(sources[m].path)
            digests.add(home.upkeep.digest())
            assert home.upkeep.verify().ok
            for m in range(len(sources)):
                assert home.upkeep.merge(sources[m].path).n_runs == 0  # a second time changes nothing
            digests.add(home.upkeep.digest())
    assert len(digests) == 1
    return digests.pop()


def everything(tmp_path, query, *sources, name="all"):
    with perdure.open(tmp_path / name, user="ada") as home:
        for source in sources:
            home.upkeep.merge(source.path)
        return sorted(hit.text for hit in home.search(query, limit=100).hits)


@pytest.fixture
def two(opened):
    return opened("one"), opened("two")


def test_disjoint_and_equal_runs_are_merged(two, message, tmp_path):
    one, other = two
    for home, session in ((one, "s"), (other, "s"), (one, "only-one"), (other, "only-two")):
        take(home, session=session, data=message("user", f"anchor of {session}", 0))
    all_orders(tmp_path, one, other)
    assert everything(tmp_path, "anchor", one, other) == ["anchor of only-one", "anchor of only-two", "anchor of s"]


def test_longer_capture_of_a_run_wins(two, message, tmp_path):
    """The same first run at two lengths (one home came later): the longer one stays."""
    one, other = two
    lines = [message("user", f"anchor {n}", n) for n in range(3)]
    take(one, session="s", data=lines[0])
    take(other, session="s", data=b"".join(lines))
    all_orders(tmp_path, one, other)
    assert len(everything(tmp_path, "anchor", one, other)) == 3


def test_different_cuts_of_one_session_are_merged(two, message, tmp_path):
    """One home has [0,3), the other [0,1) [1,2) [2,4): every message is found once."""
    one, other = two
    lines = [message("user", f"anchor {n}", n) for n in range(4)]
    take(one, session="s", data=b"".join(lines[:3]))
    at = 0
    for part in (lines[0], lines[1], lines[2] + lines[3]):
        take(other, session="s", data=part, low=at)
        at += len(part)
    all_orders(tmp_path, one, other)
    assert everything(tmp_path, "anchor", one, other) == [f"anchor {n}" for n in range(4)]


def test_merged_home_continues_capturing(two, message, tmp_path, opened):
    one, other = two
    lines = [message("user", f"anchor {n}", n) for n in range(4)]
    take(one, session="s", data=b"".join(lines[:2]))
    take(other, session="s", data=b"".join(lines[:3]))
    one.upkeep.merge(other.path)
    whole = b"".join(lines)
    answer = take(one, session="s", data=whole)
    assert (answer.outcome, answer.to_offset) == ("accepted", len(whole) - len(lines[3]))
    assert take(one, session="s", data=lines[3], low=answer.to_offset).outcome == "stored"
    assert len(one.search("anchor").hits) == 4


def test_a_session_that_went_on_in_two_places(two, message, tmp_path):
    """It was resumed on two machines: the same beginning, then different words at the same offset. All is kept."""
    one, other = two
    start = message("user", "anchor start", 0)
    for n, home in enumerate((one, other)):
        take(home, session="s", data=start)
        take(home, session="s", data=message("user", f"anchor of machine {n}", 10 + n), low=len(start))
    all_orders(tmp_path, one, other)
    assert everything(tmp_path, "anchor", one, other) == ["anchor of machine 0", "anchor of machine 1", "anchor start"]


def test_different_from_the_first_byte(two, message, tmp_path):
    one, other = two
    take(one, session="s", data=message("user", "anchor one", 0) + message("user", "anchor more", 1))
    take(other, session="s", data=message("user", "anchor two", 5))
    all_orders(tmp_path, one, other)
    assert len(everything(tmp_path, "anchor", one, other)) == 3


def test_different_with_the_same_time(two, message, tmp_path):
    one, other = two
    take(one, session="s", data=message("user", "anchor one", 0) + message("user", "anchor more", 1))
    take(other, session="s", data=message("user", "anchor two", 0))
    all_orders(tmp_path, one, other)
    assert len(everything(tmp_path, "anchor", one, other)) == 3


def test_three_different_captures_are_all_kept(opened, message, tmp_path):
    """Three captures of one session at one time, pairwise different, two of them alike in the first line."""
    homes = [opened(f"h{n}") for n in range(3)]
    for home, (first, second) in zip(homes, (("a", "x"), ("b", "y"), ("b", "z")), strict=True):
        data = message("user", f"anchor {first}", 0) + message("user", f"anchor {first}{second}", 1)
        take(home, session="s", data=data)
    all_orders(tmp_path, *homes)
    found = everything(tmp_path, "anchor", *homes)
    assert found == ["anchor a", "anchor ax", "anchor b", "anchor b", "anchor by", "anchor bz"]


def test_forgetting_on_one_side_holds_after_a_merge(two, message, tmp_path, grep):
    """What one home forgot is gone from the merged home, whichever way; also where the other captured more."""
    one, other = two
    lines = [message("user", "anchor first words", 0), message("user", "the marmalade is under the stair", 1),
             message("user", "anchor last words", 2)]  # fmt: skip
    take(one, session="s", data=b"".join(lines[:2]))
    take(other, session="s", data=b"".join(lines))
    take(other, session="copy", data=lines[1])
    (hit,) = one.search("marmalade").hits
    one.forgetting.apply(one.forgetting.plan([hit.turn_id]))
    all_orders(tmp_path, one, other)
    assert everything(tmp_path, "marmalade", one, other) == [] and len(everything(tmp_path, "anchor", one, other)) == 2
    other.upkeep.merge(one.path)
    assert grep(other.path, b"marmalade") == [] and other.search("marmalade").hits == ()
    assert len(other.search("anchor").hits) == 2


def test_forgotten_on_both_sides(two, message, tmp_path, grep):
    """Each forgot another turn, under a key of its own: both are gone everywhere, and later copies too."""
    one, other = two
    lines = [message("user", "the marmalade is under the stair", 0), message("user", "the chutney is in the cellar", 1),
             message("user", "the anchor", 2)]  # fmt: skip
    for home, word in ((one, "marmalade"), (other, "chutney")):
        take(home, session="s", data=b"".join(lines))
        (hit,) = home.search(word).hits
        home.forgetting.apply(home.forgetting.plan([hit.turn_id]))
    all_orders(tmp_path, one, other)
    one.upkeep.merge(other.path)
    take(one, session="again", data=b"".join(lines))
    for word in (b"marmalade", b"chutney"):
        assert grep(one.path, word) == []


def test_pack_on_one_side_is_merged(two, message, tmp_path):
    one, other = two
    lines = [message("user", f"anchor {n}", n) for n in range(3)]
    for home, n in ((one, 3), (other, 2)):
        at = 0
        for line in lines[:n]:
            take(home, session="s", data=line, low=at)
            at += len(line)
    other.upkeep.pack(idle_days=0)
    digest = all_orders(tmp_path, one, other)
    one.upkeep.pack(idle_days=0)
    shutil.rmtree(tmp_path / "m0")
    assert merged(tmp_path, (one, other), (1, 0), "m0") == digest
    one.upkeep.merge(other.path)
    assert one.upkeep.verify().ok and len(one.search("anchor").hits) == 3
    other.upkeep.merge(one.path)
    assert other.upkeep.verify().ok and len(other.search("anchor").hits) == 3


def test_longer_capture_is_merged_into_a_pack(two, message):
    one, other = two
    lines = [message("user", f"anchor {n}", n) for n in range(3)]
    take(one, session="s", data=lines[0])
    take(other, session="s", data=b"".join(lines))
    one.upkeep.pack(idle_days=0)
    one.upkeep.merge(other.path)
    assert one.upkeep.verify().ok and len(one.search("anchor").hits) == 3


def test_homes_of_two_users_are_merged_apart(opened, message, tmp_path):
    one = opened("one")
    bob = opened("two", user="bob")
    take(one, session="s", data=message("user", "anchor of ada", 0))
    take(bob, session="s", data=message("user", "anchor of bob", 0))
    bob.floor.note("The marmalade is under the stair")
    left = one.upkeep.merge(bob.path)
    assert (left.n_runs, left.n_events, left.left_out) == (0, 0, ("bob",)) and one.sharing.users() == ["ada"]
    assert one.upkeep.merge(bob.path, users=["ada", "bob"]).left_out == ()
    assert [hit.text for hit in one.search("anchor").hits] == ["anchor of ada"]
    as_bob = opened("one", user="bob")
    assert [hit.text for hit in as_bob.search("anchor").hits] == ["anchor of bob"]


def test_machines_and_grants_count_only_where_they_were_made(two, message):
    one, other = two
    take(one, session="s", data=message("user", "anchor", 0))
    for home in two:
        home.sharing.machines.register("ada", "phone")
        home.sharing.share("bob", "agent", "default")
    done = one.upkeep.merge(other.path)
    assert (done.n_events, done.n_without_effect) == (2, 2)
    assert one.upkeep.merge(other.path).n_without_effect == 0
    assert len(one.sharing.machines.list_machines()) == len(one.sharing.grants.list_given()) == 1


def test_a_fork_on_the_other_side(two, claude, tmp_path):
    """A fork copies history with its native ids: each message is found once, whichever came first."""
    one, other = two
    history = claude("user", "anchor history", "u1", 0) + claude("user", "anchor more", "u2", 1)
    one.capture(history, runtime="claude-code", session="zz")
    other.capture(history + claude("user", "anchor fork", "u3", 2), runtime="claude-code", session="aa")
    all_orders(tmp_path, one, other)
    assert everything(tmp_path, "anchor", one, other) == ["anchor fork", "anchor history", "anchor more"]


def test_missing_or_newer_home_is_not_merged(two, tmp_path):
    one, other = two
    with pytest.raises(HomeMissing):
        one.upkeep.merge(tmp_path)
    (other.path / "archive" / "FORMAT").write_text("99\n")
    with pytest.raises(NewerFormat):
        one.upkeep.merge(other.path)


def test_damaged_run_is_not_merged(two, message):
    """A run of the other home whose bytes were changed is left there and counted; a damaged run here is healed."""
    one, other = two
    lines = message("user", "anchor whole", 0)
    take(other, session="s", data=lines)
    take(other, session="t", data=message("user", "anchor of t", 0))
    (bad,) = (p for p in (other.path / "archive" / "runs").rglob("*.jsonl") if b"whole" in p.read_bytes())
    good = bad.read_bytes()
    bad.write_bytes(good.replace(b"whole", b"wholX"))
    done = one.upkeep.merge(other.path)
    assert (done.n_runs, len(done.damaged)) == (1, 1) and one.upkeep.verify().ok
    bad.write_bytes(good)
    one.upkeep.merge(other.path)
    (mine,) = (p for p in (one.path / "archive" / "runs").rglob("*.jsonl") if b"whole" in p.read_bytes())
    mine.write_bytes(good.replace(b"whole", b"wholX"))
    assert not one.upkeep.verify().ok
    one.upkeep.merge(other.path)
    assert one.upkeep.verify().ok


@pytest.mark.parametrize("renamed", [False, True])
@pytest.mark.parametrize("cache", ["kept", "lost"])
def test_cut_while_a_longer_capture_replaces_a_shorter(two, message, opened, renamed, cache):
    """As a crash leaves it: the new state lies beside the old one, its bytes in place already or not. The next write
    (or a new ledger) completes it or takes it back, and another merge brings in the rest.
    """
    one, other = two
    lines = [message("user", f"anchor {n}", n) for n in range(2)]
    take(one, session="s", data=lines[0])
    take(other, session="s", data=b"".join(lines))
    (held,) = one.archive.ledger.list_runs()
    for name in ("{}.jsonl", "{}.metadata.json"):
        (ours,) = (one.path / "archive" / "runs").rglob(name.format(held.run_id))
        (theirs,) = (other.path / "archive" / "runs").rglob(name.format(held.run_id))
        shutil.copy(theirs, ours.with_name(ours.name + ".next"))
        if renamed and name == "{}.jsonl":
            ours.with_name(ours.name + ".next").replace(ours)
    one.archive.ledger.reopen(held.run_id)
    one.close()
    if cache == "lost":
        shutil.rmtree(one.path / "cache")
    again = opened("one")
    take(again, session="another", data=message("user", "anchor x", 9))
    assert again.upkeep.verify().findings == []
    assert len(again.search("anchor").hits) == (3 if renamed else 2)
    again.upkeep.merge(other.path)
    assert len(again.search("anchor").hits) == 3 and again.upkeep.verify().findings == []


_ACTIONS = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from("capture capture capture forget pack".split()), st.integers(0, 1),
              st.integers(1, 3), st.integers(0, 5)),
    max_size=10,
)  # fmt: skip


@pytest.mark.slow
@settings(
    max_examples=10, deadline=None, phases=[Phase.explicit, Phase.generate], derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)  # fmt: skip
@given(_ACTIONS, st.permutations(range(3)))
def test_any_history_merges_the_same_in_every_order(tmp_path_factory, message, actions, order):
    """Three homes capture two sessions at different lengths and cuts (one of them in words of its own from its third
    message on), forget and pack; then they meet, in two orders, and one of them takes the others.
    """
    root = tmp_path_factory.mktemp("merge")
    homes = [perdure.open(root / f"h{n}", user="ada") for n in range(3)]
    lines = [
        [
            [message("user", f"word{s}x{n} in session number {s} of {who if n > 2 else 0}", 10 * n) for n in range(9)]
            for s in range(2)
        ]
        for who in (0, 0, 1)
    ]
    ends = [[0, 0] for _ in homes]
    for who, what, session, size, pick in actions:
        home, end = homes[who], ends[who][session]
        if what == "capture":
            data = b"".join(lines[who][session][end : end + size])
            take(home, session=f"s{session}", data=data, low=len(b"".join(lines[who][session][:end])))
            ends[who][session] = min(9, end + size)
        elif what == "pack":
            home.upkeep.pack(idle_days=0)
        else:
            hits = home.search(f"word{session}x{pick}").hits
            home.forgetting.apply(home.forgetting.plan([hits[0].turn_id]) if hits else [])
    digests = {merged(root, homes, range(3), "a"), merged(root, homes, order, "b")}
    for n in order[:2]:
        homes[order[2]].upkeep.merge(homes[n].path)
    digests.add(homes[order[2]].upkeep.digest())
    assert homes[order[2]].upkeep.verify().ok
    for home in homes:
        home.close()
    assert len(digests) == 1
