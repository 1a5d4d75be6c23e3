"""Find time expressions in a message: small rules for English, German, French, Spanish and Chinese -> time
windows.

Pure: `now` is a parameter, and days are those of its time zone. An expression that the rules do not
know gives no window; they never guess. A month or weekday without a year or week is the last one that
has begun. A library (dateparser 1.5: 216 ms to import and 11 MB installed, points in time and no
windows) was measured and left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import date, datetime, timedelta

from msgspec import Struct

from perdure.regex import lazy_re
from perdure.types import Window

MAX_WINDOWS = 4
_FIRST_YEAR = 1970  # before this there is nothing to recall


class TimeExpressions(Struct, frozen=True):
    """The time expressions of a message."""

    windows: tuple[Window, ...] = ()
    events: tuple[str, ...] = ()  # "since the release": an event whose date has to be looked up
    spans: tuple[tuple[int, int], ...] = ()  # (start, end) of the expressions, in characters


def _number_words(words: str, start: int = 0) -> dict[str, int]:
    """Return word -> number for groups of words; the words of one group are joined by a bar."""
    return {word: number for number, group in enumerate(words.split(), start) for word in group.split("|")}


_MONTHS = _number_words(
    "january|jan|januar|janvier|enero february|feb|februar|février|febrero march|mar|märz|mars|marzo "
    "april|apr|avril|abril may|mai|mayo june|jun|juni|juin|junio july|jul|juli|juillet|julio "
    "august|aug|août|agosto september|sep|sept|septembre|septiembre october|oct|oktober|okt|octobre|octubre "
    "november|nov|novembre|noviembre december|dec|dezember|dez|décembre|diciembre",
    1,
)
_WEEKDAYS = _number_words(
    "monday|montag|lundi|lunes tuesday|dienstag|mardi|martes wednesday|mittwoch|mercredi|miércoles "
    "thursday|donnerstag|jeudi|jueves friday|freitag|vendredi|viernes saturday|samstag|samedi|sábado "
    "sunday|sonntag|dimanche|domingo"
)
_NUMBERS = _number_words(
    "a|an|one|ein|eine|einem|einer|einen|un|une|una|一 two|zwei|deux|dos|两|二|couple three|drei|trois|tres|三 "
    "four|vier|quatre|cuatro|四 five|fünf|cinq|cinco|五 six|sechs|seis|六 seven|sieben|sept|siete|七 "
    "eight|acht|huit|ocho|八 nine|neun|neuf|nueve|九 ten|zehn|dix|diez|十",
    1,
)
_UNITS = {
    "day": "day days tag tage tagen jour jours día días 天 日",
    "week": "week weeks woche wochen semaine semaines semana semanas 周 星期 个星期 礼拜 个礼拜",
    "month": "month months monat monate monaten mois mes meses 月 个月",
    "year": "year years jahr jahre jahren an ans année années año años 年",
}
_UNIT_OF = {word: unit for unit, words in _UNITS.items() for word in words.split()}
_DAYS_AGO = {
    "today": 0, "tonight": 0, "this morning": 0, "this afternoon": 0, "this evening": 0, "heute": 0,
    "aujourd'hui": 0, "aujourd’hui": 0, "hoy": 0, "今天": 0, "yesterday": 1, "last night": 1, "gestern": 1,
    "hier": 1, "ayer": 1, "anoche": 1, "昨天": 1, "昨晚": 1, "the day before yesterday": 2, "vorgestern": 2,
    "avant-hier": 2, "anteayer": 2, "前天": 2,
}  # fmt: skip
_ZH_DAYS = {"一": 0, "二": 1, "三": 2, "四": 3, "五": 4, "六": 5, "日": 6, "天": 6}


def _join_alternatives(words: object) -> str:
    return "|".join(sorted(map(re.escape, words), key=lambda w: (-len(w), w)))  # type: ignore[call-overload]


_MONTH, _DAY_NAME, _LATIN_UNIT = (
    _join_alternatives(_MONTHS),
    _join_alternatives(_WEEKDAYS),
    _join_alternatives(w for w in _UNIT_OF if w.isalpha() and w < "一"),
)
_COUNT = rf"(?P<n>\d{{1,3}}|{_join_alternatives(w for w in _NUMBERS if w < '一')})"
_UNIT = rf"(?P<unit>{_LATIN_UNIT})"
_ZH_COUNT = r"(?P<n>\d{1,3}|[一两二三四五六七八九十])"
_ZH_UNIT = r"(?P<unit>天|日|周|个?星期|个?礼拜|个?月|年)"
_YEAR = r"(?P<year>(?:19|20)\d\d)"
_LAST = r"(?:last|past|previous|letzte[nrsm]?|vergangene[nrsm]?|vorige[nrsm]?)"
_THIS = r"(?:this|current|diese[nrsm]?|cette|cet|ce|este|esta)"

MAY_NAME_TIME = lazy_re(
    rf"\d{{4}}|\d\s*[./-]\s*\d|[年月日天周期拜晚]|\b(?:ago|vor|hace|il y a|since|after|before|until|seit|nach|bis"
    rf"|depuis|avant|desde|antes|{_LAST}|{_THIS}"
    rf"|dernière?s?|pasad[oa]s?|{_join_alternatives(w for w in _DAYS_AGO if w < '一')}|{_DAY_NAME}|{_MONTH})\b",
    re.IGNORECASE,
)  # the rules are tried only if the message matches this

DateRange = tuple[date, date]  # [from, to)
_Rule = tuple[re.Pattern[str], Callable[[re.Match[str], date], DateRange | None]]


def _make_rule(
    pattern: str, resolve: Callable[[re.Match[str], date], DateRange | None], *, flags: int = re.IGNORECASE
) -> _Rule:
    return lazy_re(pattern, flags), resolve


def _make_day(day: date) -> DateRange:
    return day, day + timedelta(days=1)


def _make_month(year: int, month: int) -> DateRange:
    return date(year, month, 1), date(year + month // 12, month % 12 + 1, 1)


def _make_year(year: int) -> DateRange:
    return date(year, 1, 1), date(year + 1, 1, 1)


def _find_week(day: date) -> DateRange:
    monday = day - timedelta(days=day.weekday())
    return monday, monday + timedelta(days=7)


def _find_month_before(day: date, n: int) -> DateRange:
    n_months = day.year * 12 + day.month - 1 - n
    return _make_month(n_months // 12, n_months % 12 + 1)


def _find_unit_ago(unit: str, n: int, today: date) -> DateRange:
    """Return the unit that is n units back: a day, the week around the day, a calendar month, a calendar year."""
    if unit == "day":
        return _make_day(today - timedelta(days=n))
    if unit == "week":
        return today - timedelta(days=7 * n + 3), today - timedelta(days=7 * n - 4)
    return _find_month_before(today, n) if unit == "month" else _make_year(today.year - n)


def _find_calendar_unit(unit: str, n: int, today: date) -> DateRange:
    """Return the calendar unit that is n before the present one; 0 is the present one."""
    if unit == "week":
        return _find_week(today - timedelta(days=7 * n))
    return _find_unit_ago(unit, n, today)


def _find_last_units(unit: str, n: int, today: date) -> DateRange:
    """Return the last n units, up to and with today."""
    days = {"day": 1, "week": 7, "month": 30, "year": 365}[unit]
    return today - timedelta(days=days * n), today + timedelta(days=1)


def _find_weekday(number: int, today: date) -> DateRange:
    """Return the last such weekday before today."""
    return _make_day(today - timedelta(days=(today.weekday() - number - 1) % 7 + 1))


def _parse_count(word: str) -> int:
    return int(word) if word.isdigit() else _NUMBERS[word.lower()]


def _parse_unit(match: re.Match[str]) -> str:
    return _UNIT_OF[match["unit"].lower()]


def _find_calendar_day(match: re.Match[str], today: date) -> DateRange | None:
    """Return a day of a month; without a year the last one that has begun."""
    month = _MONTHS[match["month"].lower()] if not match["month"].isdigit() else int(match["month"])
    year, day = match["year"], int(match["day"])
    if year:
        return _make_day(date(int(year), month, day))
    calendar_date = date(today.year, month, day)
    return _make_day(calendar_date if calendar_date <= today else date(today.year - 1, month, day))


def _find_calendar_month(match: re.Match[str], today: date) -> DateRange:
    """Return a month; without a year the last one that has begun."""
    month_name = match["month"].lower()
    month = int(month_name) if month_name.isdigit() else _MONTHS[month_name]
    if match["year"]:
        return _make_month(int(match["year"]), month)
    return _make_month(today.year if month <= today.month else today.year - 1, month)


def _find_zh_weekday(match: re.Match[str], today: date) -> DateRange:
    weeks_back = {"上上": 2, "上": 1}.get(match["back"] or "", 0)
    if not match["back"]:
        return _find_weekday(_ZH_DAYS[match["day"]], today)
    return _make_day(_find_week(today - timedelta(days=7 * weeks_back))[0] + timedelta(days=_ZH_DAYS[match["day"]]))


_RULES: tuple[_Rule, ...] = (
    _make_rule(rf"\b{_YEAR}[-/.](?P<month>\d\d?)[-/.](?P<day>\d\d?)\b", _find_calendar_day),
    _make_rule(rf"{_YEAR}年(?P<month>\d\d?)月(?P<day>\d\d?)[日号]", _find_calendar_day),
    _make_rule(rf"\b(?P<day>\d\d?)\.(?P<month>\d\d?)\.{_YEAR}\b", _find_calendar_day),
    _make_rule(
        rf"\b(?P<day>\d\d?)(?:st|nd|rd|th|\.|er)?,? (?:of |de )?(?P<month>{_MONTH})\b(?:,? (?:de )?{_YEAR})?",
        _find_calendar_day,
    ),
    _make_rule(rf"\b(?P<month>{_MONTH})\.? (?P<day>\d\d?)(?:st|nd|rd|th)?\b(?!:)(?:,? {_YEAR})?", _find_calendar_day),
    _make_rule(rf"{_YEAR}年(?P<month>\d\d?)月", _find_calendar_month),
    _make_rule(r"(?P<year>(?!))?(?P<month>\d\d?)月(?P<day>\d\d?)[日号]", _find_calendar_day),
    _make_rule(rf"\b(?P<month>{_MONTH}),? (?:of |de )?{_YEAR}\b", _find_calendar_month),
    _make_rule(rf"\b{_COUNT} {_UNIT} ago\b", lambda m, t: _find_unit_ago(_parse_unit(m), _parse_count(m["n"]), t)),
    _make_rule(rf"\ba couple of {_UNIT} ago\b", lambda m, t: _find_unit_ago(_parse_unit(m), 2, t)),
    _make_rule(
        rf"\b(?:vor|il y a|hace) {_COUNT} {_UNIT}\b",
        lambda m, t: _find_unit_ago(_parse_unit(m), _parse_count(m["n"]), t),
    ),
    _make_rule(
        rf"{_ZH_COUNT}{_ZH_UNIT}(?:以?前|之前)", lambda m, t: _find_unit_ago(_parse_unit(m), _parse_count(m["n"]), t)
    ),
    _make_rule(
        rf"\b(?:in (?:den|the) |over the |during the |les |los |las |the )?{_LAST} {_COUNT} {_UNIT}\b",
        lambda m, t: _find_last_units(_parse_unit(m), _parse_count(m["n"]), t),
    ),
    _make_rule(
        rf"\b(?:les|los|las|ces|den) {_COUNT} (?:derniers?|dernières?|últim[oa]s|letzten) {_UNIT}\b",
        lambda m, t: _find_last_units(_parse_unit(m), _parse_count(m["n"]), t),
    ),
    _make_rule(rf"\b{_LAST} {_UNIT}\b", lambda m, t: _find_calendar_unit(_parse_unit(m), 1, t)),
    _make_rule(rf"\b{_UNIT} (?:dernière?|passée?|pasad[oa])\b", lambda m, t: _find_calendar_unit(_parse_unit(m), 1, t)),
    _make_rule(rf"\b{_THIS} {_UNIT}\b", lambda m, t: _find_calendar_unit(_parse_unit(m), 0, t)),
    _make_rule(r"(?P<back>上上|上)个?(?:周|星期|礼拜)(?P<day>[一二三四五六日天])", _find_zh_weekday),
    _make_rule(r"(?P<back>(?!))?(?:周|星期|礼拜)(?P<day>[一二三四五六日天])", _find_zh_weekday),
    _make_rule(r"上个?(?:周|星期|礼拜)", lambda _, t: _find_calendar_unit("week", 1, t)),
    _make_rule(r"这个?(?:周|星期|礼拜)|本周", lambda _, t: _find_calendar_unit("week", 0, t)),
    _make_rule(r"上个?月", lambda _, t: _find_calendar_unit("month", 1, t)),
    _make_rule(r"这个?月|本月", lambda _, t: _find_calendar_unit("month", 0, t)),
    _make_rule(r"前年", lambda _, t: _make_year(t.year - 2)),
    _make_rule(r"去年", lambda _, t: _make_year(t.year - 1)),
    _make_rule(r"今年", lambda _, t: _make_year(t.year)),
    _make_rule(
        rf"(?:{_join_alternatives(_DAYS_AGO)})(?![a-z])",
        lambda m, t: _make_day(t - timedelta(days=_DAYS_AGO[m[0].lower()])),
    ),
    _make_rule(
        rf"\b(?:(?:{_LAST}|on|am|le|el|{_THIS}) )?(?P<day>{_DAY_NAME})\b(?: (?:dernier|pasado))?",
        lambda m, t: _find_weekday(_WEEKDAYS[m["day"].lower()], t),
    ),
    _make_rule(  # "may" and "march" are verbs too: only after a word that makes them dates
        rf"\b(?:in|im|en|since|seit|depuis|desde|until|bis|before|after|during|of|{_LAST}|early|late|mid|{_THIS}) "
        rf"(?P<month>{_MONTH})\b(?P<year>(?!))?",
        _find_calendar_month,
    ),
    _make_rule(r"(?<!\d)(?P<month>1[0-2]|[1-9])月(?!\d)(?P<year>(?!))?", _find_calendar_month),
    _make_rule(
        rf"(?:\b(?:in|im|en|since|seit|depuis|desde|before|after|of) {_YEAR}\b|{_YEAR.replace('year', 'zh')}年)",
        lambda m, _: _make_year(int(m["year"] or m["zh"])),
    ),
)

_SINCE_BEFORE = lazy_re(
    r"\b(?:since|seit|depuis|desde|after|nach|après|después de)(?: (?:the|le|el|la|dem|der))?\s*$", re.I
)
_UNTIL_BEFORE = lazy_re(r"\b(?:before|until|till|bis|vor dem|avant|antes de|hasta)(?: (?:the|le|el|la))?\s*$", re.I)
_SINCE_AFTER_ZH, _UNTIL_AFTER_ZH = lazy_re(r"^(?:以来|以后|之后|起)"), lazy_re(r"^(?:以前|之前)")
_SINCE_START = lazy_re(r"(?:since|seit|depuis|desde|after)\b", re.I)
_UNTIL_START = lazy_re(r"(?:before|until|bis)\b", re.I)
_EVENT = lazy_re(
    r"\b(?:since|ever since|after|seit|nach|depuis|desde|après) (?:the|our|my|we|der|dem|unserem|la|le|el|l')\s*"
    r"(?P<event>[\w.'-]+(?: [\w.'-]+){0,3})",
    re.IGNORECASE,
)


def find_times(message: str, now: datetime) -> TimeExpressions:
    """Return the windows that a message names, in order, at most four, and the events that it dates things by.

    >>> from datetime import UTC
    >>> window = find_times("what broke yesterday?", datetime(2026, 3, 10, 9, tzinfo=UTC)).windows[0]
    >>> window.since_at.isoformat(), window.until_at.isoformat()
    ('2026-03-09T00:00:00+00:00', '2026-03-10T00:00:00+00:00')
    """
    if not MAY_NAME_TIME.search(message):
        return TimeExpressions()
    matches: list[tuple[int, int, DateRange]] = []
    for pattern, resolve in _RULES:
        matches += [
            expression
            for match in pattern.finditer(message)
            if (expression := _resolve_match(match, resolve, now, matches))
        ]
    matches.sort(key=lambda item: item[:2])
    windows = tuple(_to_window(message, item, now) for item in matches)[:MAX_WINDOWS]
    spans = tuple((start, end) for start, end, _ in matches)
    return TimeExpressions(windows, tuple(_find_events(message, spans)), spans)


def _resolve_match(
    match: re.Match[str],
    resolve: Callable[[re.Match[str], date], DateRange | None],
    now: datetime,
    earlier_matches: list[tuple[int, int, DateRange]],
) -> tuple[int, int, DateRange] | None:
    """Return one expression as (start, end, days); None if an earlier rule matched there, or there is no such
    day.
    """
    if any(match.start() < end and start < match.end() for start, end, _ in earlier_matches):
        return None
    try:
        days = resolve(match, now.date())
    except (ValueError, OverflowError):  # the 31st of February; 999 years ago
        return None
    return (match.start(), match.end(), days) if days and days[0].year >= _FIRST_YEAR else None


def _to_window(message: str, expression: tuple[int, int, DateRange], now: datetime) -> Window:
    """Return the days as instants; "since" extends them up to now, "before" back to the first year."""
    start, end, (first, last) = expression
    words, text_before, text_after = message[start:end], message[:start], message[end:]
    if _SINCE_BEFORE.search(text_before) or _SINCE_START.match(words) or _SINCE_AFTER_ZH.match(text_after):
        last = now.date() + timedelta(days=1)
    elif _UNTIL_BEFORE.search(text_before) or _UNTIL_START.match(words) or _UNTIL_AFTER_ZH.match(text_after):
        first, last = date(_FIRST_YEAR, 1, 1), first
    return Window(_to_midnight(first, now), _to_midnight(last, now), words)


def _to_midnight(day: date, now: datetime) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=now.tzinfo)


def _find_events(message: str, spans: tuple[tuple[int, int], ...]) -> Iterator[str]:
    for match in _EVENT.finditer(message):
        if not any(match.start() < end and start < match.end() for start, end in spans):
            yield match["event"]
