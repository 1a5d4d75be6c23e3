"""Which lines of a message are the typing person's own words, and not pasted. Pure.

A pasted letter, diff, document, issue or role play looks like the person's own statements to a grammar. So only a line
counts that opens the message or stands alone (an empty line before and after it), and nothing counts behind the first
sign of pasted text.
"""

from __future__ import annotations

from collections.abc import Iterator

from perdure.regex import lazy_re

_MAX_HEAD_CHARS = 300  # of a line that are looked at
_PASTED_LINE = lazy_re(  # with this line pasted text begins
    r"(?i)\s*(?:(?:from|to|cc|bcc|subject|date|sent|reply-to|author|title|commit|von|an|betreff|datum|gesendet|de|para|"
    r"asunto|objet|à|发件人|收件人|主题|от|кому|тема)\s*[:：]\s"
    r"|(?:hi|hello|hey|dear|hallo|lieber?|liebes|sehr geehrter?|bonjour|chère?|salut|hola|querid[oa]|estimad[oa]|ciao|"
    r"здравствуйте|уважаем\w+)(?:\s[^,\n]{1,40})?[,!，]\s*$"
    r"|<[!/]?[a-z][^>\n]{0,200}>|\[/?[a-z_-]{2,30}\]|diff --git|index [0-9a-f]{7}|[+-]{3}\s|@@|\+|-[^\s-]|#{1,6}\s|"
    r"-{3,}|={3,}|\*{3,}|_{3,}|>|\||\"{3}|'{3}|`{3}|~{3}|@[\w./-]+\s*$)"
)
_INTRODUCTION = lazy_re(r"[:：]\s*$")  # at the end of a line: what follows is somebody's text
_REPORT = lazy_re(  # inside a line: the same, from there on
    r"(?i)(?:\b(?:contains?|says?|said|reads?|wrote|writes?|states?|stated|reports?|replied|answers?|answered|claims?|"
    r"pretend|enthält|sagt|schreibt|schrieb|lautet|steht|contient|dit|écrit|dice|contiene|escribe|scrive)\b"
    r"[^\n:：]{0,40}|@[\w./-]+[^\n:：]{0,20})[:：]\s|(?:说|写|内容|如下)[^\n:：]{0,10}[:：]|\"{3}|'{3}|```"
)
_ROLE_PLAY = lazy_re(
    r"(?i)\W*(?:(?:please|ok(?:ay)?|now|so),?\s+)?(?:let'?s\s+(?:play|pretend|role|imagine|say)|pretend\b|imagine\b|act\s+as\b|"
    r"role[- ]?play|you\s+are\s+(?:now\s+)?(?:a|an|the|my)?\s*\w+|play\s+the\s+role|write\s+(?:a|an|me|the)\b|"
    r"translate\b|summari[sz]e\b|proofread\b|stell\s+dir\s+vor|tu\s+so|spiel\w*\s|übersetze\b|imagine[zr]?\b|traduis\b|"
    r"imagina\b|finge\b|traduce\b|假设|假装|扮演|翻译|представь|переведи)"
)


def own_lines(text: str) -> Iterator[tuple[int, int]]:
    """Yield the span of each line that opens the message or stands alone, up to the first pasted text.

    >>> text = "I prefer tabs.\\n\\nSummarise this:\\nHi Bob,\\nI live in Ulm."
    >>> [text[start:end] for start, end in own_lines(text)]
    ['I prefer tabs.']
    """
    is_first, is_after_blank = True, True
    at = 0
    while at < len(text):
        end = text.find("\n", at)
        end = len(text) if end < 0 else end
        start, at = at, end + 1
        head = text[start : min(end, start + _MAX_HEAD_CHARS)]
        if not head.strip():
            is_after_blank = True
            continue
        if _PASTED_LINE.match(head) or (is_first and _ROLE_PLAY.match(head)):
            return
        next_end = text.find("\n", at)
        is_before_blank = at >= len(text) or not text[at : len(text) if next_end < 0 else next_end].strip()
        report = _REPORT.search(text, start, min(end, start + _MAX_HEAD_CHARS))
        if is_first or (is_after_blank and is_before_blank):
            yield start, report.start() if report else end
        if report or _INTRODUCTION.search(text[max(start, end - 20) : end]):
            return
        is_first = is_after_blank = False
