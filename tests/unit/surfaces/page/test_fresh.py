from perdure.surfaces.page.fresh import Fresh


def test_what_was_worked_out_is_told_again_until_it_is_old():
    now = [0.0]
    fresh, made = Fresh(fresh_s=60, now_s=lambda: now[0]), []

    def make():
        made.append(now[0])
        return len(made)

    assert fresh.told("ada", make) == 1
    now[0] = 59.9
    assert fresh.told("ada", make) == 1
    now[0] = 60.0
    assert fresh.told("ada", make) == 2 and made == [0.0, 60.0]


def test_nobody_is_told_what_was_worked_out_for_another():
    fresh = Fresh(now_s=lambda: 0.0)
    assert (fresh.told("ada", lambda: "ada's"), fresh.told("bob", lambda: "bob's")) == ("ada's", "bob's")


def test_only_so_many_are_kept():
    fresh = Fresh(now_s=lambda: 0.0)
    for n in range(40):
        fresh.told(n, lambda n=n: n)
    assert fresh.told(39, lambda: "again") == 39
    assert fresh.told(0, lambda: "again") == "again"
