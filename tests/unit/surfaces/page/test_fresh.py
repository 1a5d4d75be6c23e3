from perdure.surfaces.web.views.statistics import TtlCache


def test_value_is_reused_until_it_expires():
    now = [0.0]
    fresh, made = TtlCache(max_age_s=60, now_s=lambda: now[0]), []

    def make():
        made.append(now[0])
        return len(made)

    assert fresh.get_or_make("ada", make) == 1
    now[0] = 59.9
    assert fresh.get_or_make("ada", make) == 1
    now[0] = 60.0
    assert fresh.get_or_make("ada", make) == 2 and made == [0.0, 60.0]


def test_value_of_one_user_is_not_given_to_another():
    fresh = TtlCache(now_s=lambda: 0.0)
    assert (fresh.get_or_make("ada", lambda: "ada's"), fresh.get_or_make("bob", lambda: "bob's")) == ("ada's", "bob's")


def test_number_of_kept_values_is_limited():
    fresh = TtlCache(now_s=lambda: 0.0)
    for n in range(40):
        fresh.get_or_make(n, lambda n=n: n)
    assert fresh.get_or_make(39, lambda: "again") == 39
    assert fresh.get_or_make(0, lambda: "again") == "again"
