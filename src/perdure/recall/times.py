"""Time expressions in a message -> windows of time. Own small rules for English, German, French, Spanish, Chinese.

Pure: `now` is a parameter, and days are those of its time zone. What the rules do not know is no window, never a
guess. A month or weekday without a year or week is the last one that has begun. A library (dateparser 1.5: 216 ms to
import and 11 MB installed, points in time and no windows) was measured and left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta

from perdure.patterns import late
from perdure.types import Window

MAX_WINDOWS = 4
_FIRST_YEAR = 1970  # before this there is nothing to recall


@dataclass(frozen=True, slots=True)
class Times:
    """What a message says about time."""

    windows: tuple[Window, ...] = ()
    events: tuple[str, ...] = ()  # "since the release": an event whose date has to be looked up
    spans: tuple[tuple[int, int], ...] = ()  # where the expressions stand, in characters


def _numbered(words: str, start: int = 0) -> dict[str, int]:
    """word -> number for words in rows, alternatives joined by a bar."""
    return {name: n for n, group in enumerate(words.split(), start) for name in group.split("|")}


_MONTHS = _numbered(
    "january|jan|januar|janvier|enero february|feb|februar|février|febrero march|mar|märz|mars|marzo "
    "april|apr|avril|abril may|mai|mayo june|jun|juni|juin|junio july|jul|juli|juillet|julio "
    "august|aug|août|agosto september|sep|sept|septembre|septiembre october|oct|oktober|okt|octobre|octubre "
    "november|nov|novembre|noviembre december|dec|dezember|dez|décembre|diciembre",
    1,
)
_WEEKDAYS = _numbered(
    "monday|montag|lundi|lunes tuesday|dienstag|mardi|martes wednesday|mittwoch|mercredi|miércoles "
    "thursday|donnerstag|jeudi|jueves friday|freitag|vendredi|viernes saturday|samstag|samedi|sábado "
    "sunday|sonntag|dimanche|domingo"
)
_NUMBERS = _numbered(
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


def _any(words: object) -> str:
    return "|".join(sorted(map(re.escape, words), key=lambda w: (-len(w), w)))  # type: ignore[call-overload]


_MONTH, _DAY_NAME, _LATIN_UNIT = _any(_MONTHS), _any(_WEEKDAYS), _any(w for w in _UNIT_OF if w.isalpha() and w < "一")
_COUNT = rf"(?P<n>\d{{1,3}}|{_any(w for w in _NUMBERS if w < '一')})"
_UNIT = rf"(?P<unit>{_LATIN_UNIT})"
_ZH_COUNT = r"(?P<n>\d{1,3}|[一两二三四五六七八九十])"
_ZH_UNIT = r"(?P<unit>天|日|周|个?星期|个?礼拜|个?月|年)"
_YEAR = r"(?P<year>(?:19|20)\d\d)"
_LAST = r"(?:last|past|previous|letzte[nrsm]?|vergangene[nrsm]?|vorige[nrsm]?)"
_THIS = r"(?:this|current|diese[nrsm]?|cette|cet|ce|este|esta)"

MAYBE = late(
    rf"\d{{4}}|\d\s*[./-]\s*\d|[年月日天周期拜晚]|\b(?:ago|vor|hace|il y a|since|after|before|until|seit|nach|bis"
    rf"|depuis|avant|desde|antes|{_LAST}|{_THIS}"
    rf"|dernière?s?|pasad[oa]s?|{_any(w for w in _DAYS_AGO if w < '一')}|{_DAY_NAME}|{_MONTH})\b",
    re.IGNORECASE,
)  # what a message must hold before the rules are tried

Span = tuple[date, date]  # [from, to)
_Rule = tuple[re.Pattern[str], Callable[[re.Match[str], date], Span | None]]


def _rule(pattern: str, resolve: Callable[[re.Match[str], date], Span | None], *, flags: int = re.IGNORECASE) -> _Rule:
    return late(pattern, flags), resolve


def _day(at: date) -> Span:
    return at, at + timedelta(days=1)


def _month(year: int, month: int) -> Span:
    return date(year, month, 1), date(year + month // 12, month % 12 + 1, 1)


def _year(year: int) -> Span:
    return date(year, 1, 1), date(year + 1, 1, 1)


def _week(at: date) -> Span:
    monday = at - timedelta(days=at.weekday())
    return monday, monday + timedelta(days=7)


def _months_before(at: date, n: int) -> Span:
    months = at.year * 12 + at.month - 1 - n
    return _month(months // 12, months % 12 + 1)


def _ago(unit: str, n: int, today: date) -> Span:
    """The unit that lies n units back: a day, the week around the day, a calendar month, a calendar year."""
    if unit == "day":
        return _day(today - timedelta(days=n))
    if unit == "week":
        return today - timedelta(days=7 * n + 3), today - timedelta(days=7 * n - 4)
    return _months_before(today, n) if unit == "month" else _year(today.year - n)


def _period(unit: str, n: int, today: date) -> Span:
    """The calendar unit that is n before the present one; 0 is the present one."""
    if unit == "week":
        return _week(today - timedelta(days=7 * n))
    return _ago(unit, n, today)


def _past(unit: str, n: int, today: date) -> Span:
    """The last n units up to and with today."""
    days = {"day": 1, "week": 7, "month": 30, "year": 365}[unit]
    return today - timedelta(days=days * n), today + timedelta(days=1)


def _weekday(number: int, today: date) -> Span:
    """The last such day before today."""
    return _day(today - timedelta(days=(today.weekday() - number - 1) % 7 + 1))


def _count(word: str) -> int:
    return int(word) if word.isdigit() else _NUMBERS[word.lower()]


def _unit(match: re.Match[str]) -> str:
    return _UNIT_OF[match["unit"].lower()]


def _calendar_day(match: re.Match[str], today: date) -> Span | None:
    """A day of a month; without a year the last one that has begun."""
    month = _MONTHS[match["month"].lower()] if not match["month"].isdigit() else int(match["month"])
    year, day = match["year"], int(match["day"])
    if year:
        return _day(date(int(year), month, day))
    found = date(today.year, month, day)
    return _day(found if found <= today else date(today.year - 1, month, day))


def _calendar_month(match: re.Match[str], today: date) -> Span:
    """A month; without a year the last one that has begun."""
    name = match["month"].lower()
    month = int(name) if name.isdigit() else _MONTHS[name]
    if match["year"]:
        return _month(int(match["year"]), month)
    return _month(today.year if month <= today.month else today.year - 1, month)


def _zh_weekday(match: re.Match[str], today: date) -> Span:
    back = {"上上": 2, "上": 1}.get(match["back"] or "", 0)
    if not match["back"]:
        return _weekday(_ZH_DAYS[match["day"]], today)
    return _day(_week(today - timedelta(days=7 * back))[0] + timedelta(days=_ZH_DAYS[match["day"]]))


_RULES: tuple[_Rule, ...] = (
    _rule(rf"\b{_YEAR}[-/.](?P<month>\d\d?)[-/.](?P<day>\d\d?)\b", _calendar_day),
    _rule(rf"{_YEAR}年(?P<month>\d\d?)月(?P<day>\d\d?)[日号]", _calendar_day),
    _rule(rf"\b(?P<day>\d\d?)\.(?P<month>\d\d?)\.{_YEAR}\b", _calendar_day),
    _rule(
        rf"\b(?P<day>\d\d?)(?:st|nd|rd|th|\.|er)?,? (?:of |de )?(?P<month>{_MONTH})\b(?:,? (?:de )?{_YEAR})?",
        _calendar_day,
    ),
    _rule(rf"\b(?P<month>{_MONTH})\.? (?P<day>\d\d?)(?:st|nd|rd|th)?\b(?!:)(?:,? {_YEAR})?", _calendar_day),
    _rule(rf"{_YEAR}年(?P<month>\d\d?)月", _calendar_month),
    _rule(r"(?P<year>(?!))?(?P<month>\d\d?)月(?P<day>\d\d?)[日号]", _calendar_day),
    _rule(rf"\b(?P<month>{_MONTH}),? (?:of |de )?{_YEAR}\b", _calendar_month),
    _rule(rf"\b{_COUNT} {_UNIT} ago\b", lambda m, t: _ago(_unit(m), _count(m["n"]), t)),
    _rule(rf"\ba couple of {_UNIT} ago\b", lambda m, t: _ago(_unit(m), 2, t)),
    _rule(rf"\b(?:vor|il y a|hace) {_COUNT} {_UNIT}\b", lambda m, t: _ago(_unit(m), _count(m["n"]), t)),
    _rule(rf"{_ZH_COUNT}{_ZH_UNIT}(?:以?前|之前)", lambda m, t: _ago(_unit(m), _count(m["n"]), t)),
    _rule(
        rf"\b(?:in (?:den|the) |over the |during the |les |los |las |the )?{_LAST} {_COUNT} {_UNIT}\b",
        lambda m, t: _past(_unit(m), _count(m["n"]), t),
    ),
    _rule(
        rf"\b(?:les|los|las|ces|den) {_COUNT} (?:derniers?|dernières?|últim[oa]s|letzten) {_UNIT}\b",
        lambda m, t: _past(_unit(m), _count(m["n"]), t),
    ),
    _rule(rf"\b{_LAST} {_UNIT}\b", lambda m, t: _period(_unit(m), 1, t)),
    _rule(rf"\b{_UNIT} (?:dernière?|passée?|pasad[oa])\b", lambda m, t: _period(_unit(m), 1, t)),
    _rule(rf"\b{_THIS} {_UNIT}\b", lambda m, t: _period(_unit(m), 0, t)),
    _rule(r"(?P<back>上上|上)个?(?:周|星期|礼拜)(?P<day>[一二三四五六日天])", _zh_weekday),
    _rule(r"(?P<back>(?!))?(?:周|星期|礼拜)(?P<day>[一二三四五六日天])", _zh_weekday),
    _rule(r"上个?(?:周|星期|礼拜)", lambda _, t: _period("week", 1, t)),
    _rule(r"这个?(?:周|星期|礼拜)|本周", lambda _, t: _period("week", 0, t)),
    _rule(r"上个?月", lambda _, t: _period("month", 1, t)),
    _rule(r"这个?月|本月", lambda _, t: _period("month", 0, t)),
    _rule(r"前年", lambda _, t: _year(t.year - 2)),
    _rule(r"去年", lambda _, t: _year(t.year - 1)),
    _rule(r"今年", lambda _, t: _year(t.year)),
    _rule(rf"(?:{_any(_DAYS_AGO)})(?![a-z])", lambda m, t: _day(t - timedelta(days=_DAYS_AGO[m[0].lower()]))),
    _rule(
        rf"\b(?:(?:{_LAST}|on|am|le|el|{_THIS}) )?(?P<day>{_DAY_NAME})\b(?: (?:dernier|pasado))?",
        lambda m, t: _weekday(_WEEKDAYS[m["day"].lower()], t),
    ),
    _rule(  # "may" and "march" are verbs too: only behind a word that dates them
        rf"\b(?:in|im|en|since|seit|depuis|desde|until|bis|before|after|during|of|{_LAST}|early|late|mid|{_THIS}) "
        rf"(?P<month>{_MONTH})\b(?P<year>(?!))?",
        _calendar_month,
    ),
    _rule(r"(?<!\d)(?P<month>1[0-2]|[1-9])月(?!\d)(?P<year>(?!))?", _calendar_month),
    _rule(rf"(?:\b(?:in|im|en|since|seit|depuis|desde|before|after|of) {_YEAR}\b|{_YEAR.replace('year', 'zh')}年)",
          lambda m, _: _year(int(m["year"] or m["zh"]))),
)  # fmt: skip

_FROM = late(r"\b(?:since|seit|depuis|desde|after|nach|après|después de)(?: (?:the|le|el|la|dem|der))?\s*$", re.I)
_UP_TO = late(r"\b(?:before|until|till|bis|vor dem|avant|antes de|hasta)(?: (?:the|le|el|la))?\s*$", re.I)
_FROM_ZH, _UP_TO_ZH = late(r"^(?:以来|以后|之后|起)"), late(r"^(?:以前|之前)")
_STARTS = late(r"(?:since|seit|depuis|desde|after)\b", re.I)
_STOPS = late(r"(?:before|until|bis)\b", re.I)
_EVENT = late(
    r"\b(?:since|ever since|after|seit|nach|depuis|desde|après) (?:the|our|my|we|der|dem|unserem|la|le|el|l')\s*"
    r"(?P<event>[\w.'-]+(?: [\w.'-]+){0,3})",
    re.IGNORECASE,
)


def times(message: str, now: datetime) -> Times:
    """The windows that a message names, in order, at most four, and events that it dates things by.

    >>> from datetime import UTC
    >>> found = times("what broke yesterday?", datetime(2026, 3, 10, 9, tzinfo=UTC)).windows[0]
    >>> found.since_at.isoformat(), found.until_at.isoformat()
    ('2026-03-09T00:00:00+00:00', '2026-03-10T00:00:00+00:00')
    """
    if not MAYBE.search(message):
        return Times()
    taken: list[tuple[int, int, Span]] = []
    for pattern, resolve in _RULES:
        taken += [found for match in pattern.finditer(message) if (found := _resolved(match, resolve, now, taken))]
    taken.sort(key=lambda item: item[:2])
    windows = tuple(_window(message, item, now) for item in taken)[:MAX_WINDOWS]
    spans = tuple((start, end) for start, end, _ in taken)
    return Times(windows, tuple(_events(message, spans)), spans)


def _resolved(
    match: re.Match[str],
    resolve: Callable[[re.Match[str], date], Span | None],
    now: datetime,
    taken: list[tuple[int, int, Span]],
) -> tuple[int, int, Span] | None:
    """One expression as (start, end, days); None where an earlier rule was, or where there is no such day."""
    if any(match.start() < end and start < match.end() for start, end, _ in taken):
        return None
    try:
        days = resolve(match, now.date())
    except (ValueError, OverflowError):  # the 31st of February; 999 years ago
        return None
    return (match.start(), match.end(), days) if days and days[0].year >= _FIRST_YEAR else None


def _window(message: str, item: tuple[int, int, Span], now: datetime) -> Window:
    """The days as instants, opened to now by "since" and to the past by "before"."""
    start, end, (first, last) = item
    words, before, behind = message[start:end], message[:start], message[end:]
    if _FROM.search(before) or _STARTS.match(words) or _FROM_ZH.match(behind):
        last = now.date() + timedelta(days=1)
    elif _UP_TO.search(before) or _STOPS.match(words) or _UP_TO_ZH.match(behind):
        first, last = date(_FIRST_YEAR, 1, 1), first
    return Window(_midnight(first, now), _midnight(last, now), words)


def _midnight(day: date, now: datetime) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=now.tzinfo)


def _events(message: str, spans: tuple[tuple[int, int], ...]) -> Iterator[str]:
    for match in _EVENT.finditer(message):
        if not any(match.start() < end and start < match.end() for start, end in spans):
            yield match["event"]
