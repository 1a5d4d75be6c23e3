import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from perdure.config import LimitsConfig
from perdure.recall.candidates import NameSighting
from perdure.recall.judge import (
    MAX_RAISE,
    MIN_ANSWERS,
    MIN_WANTED_SHARE,
    THRESHOLDS,
    WORDS,
    AnsweredBlock,
    Evidence,
    FittedLimits,
    extract_query_words,
    extract_stems,
    find_held_stems,
    fit_limits,
    gather_evidence,
    get_threshold,
    judge,
    make_spelling_key,
    stem,
)

NOTHING = Evidence(cosine=None, covered=0.0, n_held=0, known_names=0.0, unknown_names=0.0)
SHARE = st.floats(0, 1)
MINILM = "all-minilm-l6-v2-int8"
MODELS = ("", *sorted(THRESHOLDS))


def _evidence(**given_):
    return replace(NOTHING, **given_)


def test_evidence_is_worked_out_by_hand():
    """staging (rarity 3) and port (1) asked, the best text holds staging: 3 / 4 = 0.75 with one word; the other text
    holds port alone: 1 / 4. Of two names one is known and rare, one is nowhere.
    """
    words = {"staging": (1, 3.0), "port": (9, 1.0)}
    names = {"Kestrel": NameSighting(2, 2.0), "Zanzibar": NameSighting(0, 5.0)}
    found = gather_evidence(words, names, texts=["a port", "staging is down"], cosine=0.4)
    assert found == Evidence(0.4, 0.75, 1, 0.5, 0.5, n_asked=2)


@pytest.mark.parametrize(
    ("words", "name", "best_text", "unknown_names"),
    [
        ({"invoice_no.py": (2, 5.4)}, "Sassnitz", "invoice_no.py counts per harbour", 0.0),
        ({"booking-api": (16, 3.3)}, "berth_swaps", "booking-api stores ULIDs", 0.0),
        ({"booking-api": (16, 3.3)}, "berth_swaps", "ULIDs everywhere", 1.0),  # no best text holds it
        ({"booking-api": (90, 0.9)}, "berth_swaps", "booking-api stores ULIDs", 1.0),  # it is nearly everywhere
        ({"booking": (16, 3.3)}, "berth_swaps", "booking stores ULIDs", 1.0),  # a plain word may be about anything
        ({"port": (1, 3.0)}, "Muhammad", "Muhhamed: my port is 8080", 0.0),
        ({"port": (1, 3.0)}, "Müller", "Mueller wants that port", 0.0),
        ({"port": (1, 3.0)}, "Ada Quarrel", "Ada Querell wants that port", 1.0),  # "Ada" has too few consonants
        ({"port": (1, 3.0)}, "Muhammad", "Mehmet wants that port", 1.0),
        ({"port": (1, 3.0)}, "Dan", "Dean wants that port", 1.0),
        ({"port": (1, 3.0)}, "Potter", "a pottery port", 1.0),
    ],
)
def test_a_new_name_beside_known_things_is_no_evidence(words, name, best_text, unknown_names):
    names = {name: NameSighting(0, 6.7)}
    assert gather_evidence(words, names, texts=[best_text], cosine=0.4).unknown_names == unknown_names


@pytest.mark.parametrize(
    ("name", "other"), [("Muhammad", "Mohammed"), ("Aqib", "Akib"), ("Nikolas", "Nicolás"), ("Stefon", "Stephen")]
)
def test_spellings_of_a_name_have_one_key(name, other):
    assert make_spelling_key(name) == make_spelling_key(other)


def test_relevance_of_two_legs_by_hand():
    """0.3 + 0.4 · 0.5 - 0.015 · 4 = 0.44, above 0.33; with an unknown name 0.44 - 0.3 = 0.14, below. Of twenty asked
    words ten count: 0.46 - 0.15 = 0.31, below. With one word of the question held 0.37 - 0.05 = 0.32, below.
    """
    spoken = judge(_evidence(cosine=0.3, covered=0.5, n_held=2, n_asked=4), MINILM)
    assert spoken.relevance == pytest.approx(0.44)
    assert not spoken.silent
    assert judge(_evidence(cosine=0.3, covered=0.5, n_held=2, n_asked=4, unknown_names=1.0), MINILM).silent
    long = judge(_evidence(cosine=0.26, covered=0.5, n_held=2, n_asked=20), MINILM)
    assert long.relevance == pytest.approx(0.31)
    assert long.silent
    one_word = judge(_evidence(cosine=0.25, covered=0.3, n_held=1), MINILM)
    assert one_word.relevance == pytest.approx(0.32)
    assert one_word.silent and not judge(_evidence(cosine=0.25, covered=0.3, n_held=2), MINILM).silent


def test_words_decide_too_in_a_script_that_the_model_does_not_read():
    """All texts in one such script are alike for the model: 0.6 is above 0.33, but no word of the question is held."""
    assert judge(_evidence(cosine=0.6, is_unread=True), MINILM).silent
    assert not judge(_evidence(cosine=0.6), MINILM).silent
    assert not judge(_evidence(cosine=0.6, covered=0.04, n_held=1, is_unread=True), MINILM).silent
    assert judge(_evidence(cosine=0.2, covered=0.04, n_held=1, is_unread=True), MINILM).silent
    assert (
        judge(_evidence(cosine=0.6, is_unread=True), MINILM).relevance < judge(_evidence(cosine=0.6), MINILM).threshold
    )


@pytest.mark.parametrize(
    ("words", "is_unread"),
    [(("部署", "端口"), True), (("端口", "limiter", "go"), False), (("где", "порт"), True),
     (("ポート番号", "api"), True), (("größe", "façade"), False), (("8080",), False), ((), False)],
)  # fmt: skip
def test_script_of_most_letters_counts(words, is_unread):
    weighed = dict.fromkeys(words, (1, 1.0))
    assert gather_evidence(weighed, {}, texts=["text"], cosine=0.4).is_unread is is_unread


def test_verdict_names_the_rule_that_let_recall_speak():
    """0.3 + 0.4 · 0.5 = 0.5 is above 0.33; 0.4 · 0.7 = 0.28 is below, and 0.7 of two words is enough."""
    by_relevance = judge(_evidence(cosine=0.3, covered=0.5, n_held=2), MINILM)
    assert (by_relevance.spoke_by, by_relevance.coverage, by_relevance.judged_for) == ("relevance", 0.5, MINILM)
    assert judge(_evidence(cosine=0.0, covered=0.7, n_held=2), MINILM).spoke_by == "coverage"
    one_word = judge(_evidence(cosine=0.0, covered=0.7, n_held=1), MINILM)
    assert (one_word.spoke_by, one_word.coverage) == ("", 0.0) and one_word.silent
    assert judge(_evidence(cosine=0.9), "some-other-model").judged_for == WORDS


@pytest.mark.parametrize("model", MODELS)
def test_strong_keyword_evidence_is_never_silenced(model):
    """term-llm #19: a threshold above what one leg can reach dropped every hit that only keywords found."""
    cosine = None if not model else 0.0
    assert not judge(_evidence(cosine=cosine, covered=0.7, n_held=2), model).silent


@pytest.mark.parametrize("model", sorted(THRESHOLDS))
def test_strong_vector_evidence_is_never_silenced(model):
    assert not judge(_evidence(cosine=0.45), model).silent


def test_an_uncalibrated_model_is_judged_by_words():
    assert not judge(_evidence(cosine=0.1, covered=0.2, n_held=1), "some-other-model").silent
    assert judge(_evidence(cosine=0.9), "some-other-model").silent


@pytest.mark.parametrize("model", MODELS)
def test_missing_evidence_is_silent_with_a_reason(model):
    assert "below the threshold" in judge(_evidence(cosine=None if not model else 0.1), model).silent


@given(SHARE, SHARE, st.integers(0, 6), SHARE, SHARE, SHARE, st.sampled_from(MODELS), st.booleans())
def test_more_evidence_never_silences(cosine, covered, n_held, unknown, more, more_covered, model, is_unread):
    less = Evidence(None if not model else cosine, covered, n_held, 0.0, unknown, is_unread=is_unread)
    grown = Evidence(
        None if not model else min(1, cosine + more),
        min(1, covered + more_covered), n_held + 1, 0.0, unknown * (1 - more), is_unread=is_unread,
    )  # fmt: skip
    if not judge(less, model).silent:
        assert not judge(grown, model).silent


def test_limits_of_a_home_replace_the_built_in_ones():
    """0.3 + 0.4 · 0.5 = 0.5, below 0.51; 0.4 · 0.7 = 0.28, below 0.33, and 0.7 of the words are not 0.8 of them."""
    limits = {MINILM: LimitsConfig(relevance=0.51, coverage=0.8)}
    by_relevance, by_words = _evidence(cosine=0.3, covered=0.5, n_held=2), _evidence(cosine=0.0, covered=0.7, n_held=2)
    for evidence in (by_relevance, by_words):
        assert not judge(evidence, MINILM).silent and judge(evidence, MINILM, limits).silent
        assert judge(evidence, "potion-base-8m-int8", limits) == judge(evidence, "potion-base-8m-int8")
    assert judge(by_relevance, MINILM, limits).threshold == 0.51
    assert not judge(by_relevance, MINILM, {MINILM: LimitsConfig()}).silent


def answer(relevance: float, is_wanted: bool, coverage: float = 0.0) -> AnsweredBlock:
    return AnsweredBlock(MINILM, relevance, coverage, is_wanted)


def test_limits_are_fitted_to_answers_by_hand():
    """Unwanted at 0.34 and 0.36, wanted from 0.40 on: half-way between 0.36 and 0.40 is 0.38.

    An unwanted block that spoke by 0.65 of its words takes 0.7 of them.
    """
    wanted = [answer(0.4 + n / 100, True) for n in range(8)]
    fitted = fit_limits([*wanted, answer(0.34, False), answer(0.36, False)])[MINILM]
    assert fitted == FittedLimits(LimitsConfig(0.38, 0.6), 8, 2, 8, 0)
    fitted = fit_limits([*wanted, answer(0.34, False), answer(0.2, False, 0.65)])[MINILM]
    assert fitted == FittedLimits(LimitsConfig(0.37, 0.7), 8, 2, 8, 0)


def test_few_answers_change_nothing():
    assert fit_limits([answer(0.4, False)] * (MIN_ANSWERS - 1)) == {}
    assert fit_limits([answer(0.4, True)] * MIN_ANSWERS)[MINILM].limits == LimitsConfig(THRESHOLDS[MINILM], 0.6)


ANSWERS = st.lists(
    st.builds(
        AnsweredBlock,
        st.sampled_from([MINILM, WORDS]),
        st.floats(0, 1.5).map(lambda value: round(value, 4)),
        SHARE.map(lambda value: round(value, 4)),
        st.booleans(),
    ),
    max_size=60,
)


@given(ANSWERS, st.randoms(use_true_random=False))
def test_fitted_limits_are_bounded_and_never_worse(blocks, random):
    told = [b for b in blocks if b.relevance >= get_threshold(b.judged_for) or b.coverage >= 0.6]
    fits = fit_limits(told)
    shuffled = list(told)
    random.shuffle(shuffled)
    assert fit_limits(shuffled) == fits
    for judged_for, fit in fits.items():
        base, answered = get_threshold(judged_for), [b for b in told if b.judged_for == judged_for]
        assert len(answered) == fit.n_wanted + fit.n_unwanted >= MIN_ANSWERS
        assert base <= fit.limits.relevance <= base + MAX_RAISE and 0.6 <= fit.limits.coverage <= 1.0
        assert fit.n_wanted_told >= MIN_WANTED_SHARE * fit.n_wanted
        assert fit.n_wanted_told - fit.n_unwanted_told >= fit.n_wanted - fit.n_unwanted


def test_words_are_stemmed():
    assert [stem(word) for word in ("paints", "painted", "painting", "quickly", "bus", "数据")] == [
        "paint", "paint", "paint", "quick", "bus", "数据",
    ]  # fmt: skip


FORMS = st.sampled_from(
    [
        "port",
        "Ports",
        "PortMapping",
        "portings",
        "important",
        "HTTPServer",
        "use",
        "usage",
        "uses's",
        "run-time",
        "über",
        "Überport",
        "ports — “usage”…",
        "数据库",
        "数据",
        "库",
        "用SQLite数据库",
        "ＳＱＬ数据，库の",
        "か\u3099き",
        "が",
        "한국어는",
        "ﾃﾞｰﾀ",
        "ที่นี่",
        "กา",
        "⼀数",
        "ヿ",
        "a",
        "bus",
        "buses",
        "parties",
        "party",
    ]
)


GAPS = st.sampled_from(("", *" _.\n-—"))


@given(parts=st.lists(FORMS, max_size=8), asked=st.lists(FORMS, min_size=1, max_size=4), gap=GAPS)
def test_held_stems_are_those_of_all_words(parts, asked, gap):
    """The short way through a text finds what stemming all its words finds."""
    candidate_text = gap.join(parts)
    stems = frozenset().union(*map(extract_stems, asked))
    assert find_held_stems(stems, candidate_text) == stems & extract_stems(candidate_text)


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ("Warum haben wir die Tabellen geändert?", ("tabellen", "geändert")),
        ("Pourquoi avons nous choisi React ?", ("choisi", "react")),
        ("¿Por qué elegimos React para las pantallas?", ("elegimos", "react", "pantallas")),
        ("did the die for the war game break?", ("die", "war", "game", "break")),
        ("warum nur", ("warum", "nur")),
    ],
)
def test_stop_words_are_those_of_the_message_own_language(message: str, words: tuple[str, ...]) -> None:
    assert extract_query_words(message) == words
