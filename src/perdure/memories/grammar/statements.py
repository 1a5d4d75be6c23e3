"""Plain statements in what a person typed, found by rules without any model. Pure.

Counts: what holds beyond the moment. Preferences, standing instructions, decisions, facts, procedures, dated events.
Questions, suppositions, quotations, code, logs and commands for the task at hand do not. Precision goes before recall.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from perdure.memories.grammar import chinese, words
from perdure.memories.grammar.claims import claim
from perdure.memories.grammar.forms import kind_by_form, rule_kind
from perdure.memories.grammar.grammar import languages_of
from perdure.memories.grammar.own_words import own_lines
from perdure.memories.grammar.sentences import MAX_CHARS, MIN_CHARS, MIN_WIDE, quotations, sentences, unfenced
from perdure.memories.grammar.values import Claim
from perdure.regex import lazy_re
from perdure.types import MemoryKind

MAX_STATEMENTS = 50  # of one message: what holds more is a document, not something typed


@dataclass(frozen=True, slots=True)
class Statement:
    """One plain statement, as it was typed."""

    kind: MemoryKind
    text: str  # the words between start and end
    start: int  # characters of the message
    end: int
    language: str


def stated(text: str) -> list[Statement]:
    """Return the plain statements in a message, in order; the text of each is what stands at its span.

    >>> [(s.kind, s.text) for s in stated("btw I prefer tabs over spaces. Can you fix the test?")]
    [('preference', 'I prefer tabs over spaces.')]
    """
    found: list[Statement] = []
    if _is_document(text):
        return found
    lines = [*own_lines(text)]
    for start, end in sentences(text):
        line_index = bisect_right(lines, (start, len(text))) - 1
        if line_index < 0 or end > lines[line_index][1]:
            continue
        for at, to, kind in _found_in(text, start, end):
            found.append(Statement(kind, text[at:to], at, to, _language(text[at:to])))
        if len(found) >= MAX_STATEMENTS:
            break
    return found


_MARKUP = lazy_re(r"\s{0,3}(?:#{1,6} \S|(?:[-*] |\d+\. )?\*\*[^*\n]{1,80}\*\*|</?[a-z_-]{2,30}>\s*$|={4,}$|-{4,}$)")
MAX_MARKUP = 2  # headings and bold labels of a message that was typed; one with more was written as a document
MAX_TYPED_CHARS = 20_000  # an hour's typing; a longer message was pasted


def _is_document(text: str) -> bool:
    """Return whether a message was not typed as one: very long, or laid out with headings and bold labels."""
    if len(text) > MAX_TYPED_CHARS:
        return True
    return sum(bool(_MARKUP.match(text[start : min(end, start + 300)])) for start, end in unfenced(text)) > MAX_MARKUP


def _language(text: str) -> str:
    if chinese.is_chinese(text):
        return "zh"
    return languages_of([w.strip(".,;:!?") for w in text.lower().split()])[0]


# ------------------------------------------------------------------------------------------- what is looked at

_LEAD = lazy_re(
    r"(?i)(?:(?:btw|by the way|also|and|but|so|ok(?:ay)?|oh|well|hey|hi|hello|yes|yeah|yep|nope|sure|thanks|"
    r"no(?=[,:!–—-]|\s+(?:i|we|it|that|the|my|our|you|this|they|always|never|use)\b)|"
    r"thank you|cool|great|"
    r"perfect|nice|actually|fyi|just so you know|for your information|heads up|quick note(?: before we start)?|"
    r"note(?: that)?|"
    r"please note(?: that)?|remember(?: that)?|please remember(?: that)?|one more thing|correction|update|"
    r"quick update|sorry|oops|wait|no wait|"
    r"for the record|for context|"
    r"übrigens|ach so|ach|also|achtung|hinweis|korrektur|zur info|kurze info|nur zur info|merk dir(?: bitte)?|hallo|"
    r"ja|nein|danke|"
    r"au fait|pour info|pour information|bonjour|salut|oui|non|merci|note que|d'accord|"
    r"por cierto|para que lo sepas|vale|hola|sí|gracias|ten en cuenta que|recuerda que|"
    r"a proposito|ciao|grazie|a propósito|olá|obrigado|obrigada)(?:\s*[,:!–—-]+\s*|\s+))+"
)
_LEAD_ZH = lazy_re(r"(?:对了|顺便说一下|顺便提一下|另外|更正|注意|好的|你好|谢谢)[，,：:、 ]*")
_ASK = (  # what begins a question or a request behind a statement
    r"(?:(?:and|so|but|now|then|also|und|et|y|e|kannst|mais|pero|aber)\s+)?(?:also\s+)?(?:please\b|can (?:you|we|"
    r"i)\b|could (?:you|we|i)\b|would (?:you|it|that)\b|will you\b|"
    r"do (?:you|i|we)\b|does (?:it|that|this)\b|did (?:you|i|we)\b|is (?:it|that|there|this)\b|are (?:there|you|"
    r"these)\b|should (?:i|we|it)\b|what\b|how\b|which (?:one|of|way|\w+ (?:should|do|would|can))\b|when (?:do|"
    r"should|can|is|will)\b|where\b|"
    r"why\b|who\b|any (?:advice|tips|ideas|suggestions|recommendations)\b|let'?s see\b|help me\b|i(?:'m|"
    r" am) (?:looking for|wondering|trying|hoping|not sure|unsure|curious|worried|struggling|thinking|kinda|kind of|"
    r"having trouble|asking)\b|"
    r"i (?:want|need|would like|was wondering|don't know|wonder)\b|i'd like\b|(?:fix|update|rerun|run|check|add|look|"
    r"make|tell|show|give|write|explain|create)\b|"
    r"kannst du\b|können (?:wir|sie)\b|könntest du\b|bitte\b|wie\b|was\b|soll (?:ich|ten)\b|"
    r"(?:est-ce que|tu peux|peux-tu|pouvez-vous|pourrais-tu|comment|pourquoi|quel|quelle)\b|"
    r"¿|puedes\b|podrías\b|cómo\b|qué\b|por qué\b|puoi\b|potresti\b|você pode\b|pode\b|podes\b)"
)
_REQUEST = lazy_re(rf"(?i)(?:,|\s[–—-]|:|;)\s*{_ASK}")
_BOUND = lazy_re(
    rf"(?i)(?:,|\s[–—-]|:|;)\s*(?={_ASK})|(?:,\s*)?\s(?:and|but|so|und|aber|et|mais|y|pero|e|ma|mas)\s+(?=(?:i|we)['’]?"
    r"(?:m|ve|re|ll|d)?\s(?!(?:have )?(?:come|came) up with)|(?:ich|wir|je|on|nous|yo|io|eu)\s|j['’])|,\s+(?:(?:and|"
    r"but|so|und|aber|et|mais|y|pero|e|ma|mas)\s+)?(?=(?:i|we)"
    r"['’]?(?:m|ve|re|ll|d)?\s(?!(?:have )?(?:come|came) up with)|(?:ich|wir|je|on|nous|yo|io|eu)\s|j['’]|(?:my|our|"
    r"the)\s(?:[\w-]{1,30}\s){1,4}?(?:is|are|was|has|"
    r"uses|runs|lives|ends|starts|should|must|will|needs)\b)"
)
_QUESTION = lazy_re(
    r"(?i)(?:please\b|can (?:you|we|i)\b|could (?:you|we|i)\b|would (?:you|it|that)\b|will you\b|do (?:you|i|we)\b|"
    r"does\b|did (?:you|i|we)\b|is\b|are\b|should (?:i|we|it)\b|what\b|how\b|which\b|when\b|where\b|why\b|who\b|"
    r"whether\b|if\b|help me\b|any (?:advice|tips|ideas|suggestions|recommendations)\b|kannst du\b|können (?:wir|"
    r"sie)\b|könntest du\b|wie\b|was\b|soll(?:en|te|ten)?\b|wenn\b|ob\b|est-ce que\b|tu peux\b|peux-tu\b|comment\b|"
    r"pourquoi\b|si\b|¿|puedes\b|podrías\b|puoi\b|potresti\b|você pode\b|pode\b|podes\b)"
)
_LEARNED = lazy_re(
    r"(?i)(?:i|we)(?:['’]ve| have)? (?:just |also )?(?:noticed|learned|learnt|found out|heard|read|was told|"
    r"were told|realised|"
    r"realized|remembered) that\s+|(?:it )?turns out(?: that)?\s+"
)
_ASKED = lazy_re(r"(?i)(?:can|could|would|will) (?:you|we|i)\b|kannst du\b|tu peux\b|peux-tu\b|puedes\b")
_EVERY_TIME = lazy_re(
    r"(?i)(?:every|each|the next) time\b|whenever\b|once\b|as soon as\b|jedes mal\b|à chaque fois\b|"
    r"cada vez\b"
)
_TRIED = lazy_re(r"(?i)\b(?:tried|checked|verified|made sure|double[- ]checked)\b")  # what was done was an attempt
_REQUEST_ZH = lazy_re(r"[，,](?:请|帮我|你能|能不能|可以|怎么|为什么|然后|麻烦)")
_TAG = lazy_re(
    r"(?i)(?:,\s*(?:just so you know|btw|by the way|fyi|thanks|thank you|please|ok(?:ay)?|you know|right|cheers|"
    r"my typo|"
    r"nur zur info|danke|zur info|merci|gracias|por favor|pour info|grazie|obrigado))+(?=[.!]*$)"
)


def _found_in(text: str, start: int, end: int) -> Iterator[tuple[int, int, MemoryKind]]:
    """Yield what a sentence states: as a whole up to the request behind it, else in each of its parts."""
    start = _without_lead(text, start, end)
    at, to = _up_to_request(text, start, end)
    kind = None if quotations(text[at:to]) else _kind_of(text[at:to])
    if kind:
        yield at, to, kind
    elif _ASKED.match(text, start, end) or not (_OPEN.match(text, start, end) or _EVERY_TIME.match(text, start, end)):
        yield from _found_in_parts(text, start, end, judged=(at, to))


def _found_in_parts(
    text: str, start: int, end: int, *, judged: tuple[int, int]
) -> Iterator[tuple[int, int, MemoryKind]]:
    """Yield what the parts of a sentence state that are the person's own words; what was judged needs it no more."""
    quoted = quotations(text[start:end])
    is_tried = False
    for at, to in _parts(text, start, end):
        said, was_tried = text[at:to], is_tried
        is_tried = bool(_TRIED.search(said))
        if any(start + a < to and at < start + b for a, b in quoted) or next(sentences(said), None) != (0, len(said)):
            continue
        kind = (_kind_of(said) if (at, to) != judged else None) or (
            kind_by_form(said) if len(said) <= MAX_CHARS and not _OPEN.match(said) else None
        )
        if kind and not (was_tried and kind == "event"):
            yield at, to, kind


def _without_lead(text: str, start: int, end: int) -> int:
    """Return where a sentence begins behind what leads into it."""
    while lead := (_LEAD.match(text, start, end) or _LEAD_ZH.match(text, start, end)):
        start = lead.end()
    return start


def _up_to_request(text: str, start: int, end: int) -> tuple[int, int]:
    """Return the span of a sentence without the request behind it; an empty one when all of it is a question."""
    if _STEPS.match(text[start:end]):
        return start, end
    cut = min((m.start() for p in (_REQUEST, _REQUEST_ZH) if (m := p.search(text, start + 1, end))), default=end)
    if cut == end and text[end - 1] in "?？":
        return start, start
    return start, _trimmed(text, start, cut)


def _trimmed(text: str, start: int, end: int) -> int:
    """Return where a statement ends before what only closes it: a tag, a comma."""
    if tag := _TAG.search(text, start, end):
        end = tag.start()
    while end > start and text[end - 1] in " ,;:–—-":
        end -= 1
    return end


def _parts(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the parts of a sentence that each have a subject of their own; not what asks, nor what is joined to it."""
    bounds = [m.span() for m in _BOUND.finditer(text, start + 1, end)]
    is_asking = False
    for (before, at), (to, _) in pairwise([(start, start), *bounds, (end, end)]):
        at = _without_lead(text, at, to)
        if learned := _LEARNED.match(text, at, to):
            at = learned.end()
        is_joined = any(c.isalpha() for c in text[before:at])
        is_asking = bool(_QUESTION.match(text, at, to)) or (is_asking and is_joined)
        if (is_asking or to == end) and text[end - 1] in "?？":
            return
        if not is_asking:
            yield at, _trimmed(text, at, to)


def _kind_of(said: str) -> MemoryKind | None:
    """Return what kind of statement this is, None when it is none or too short or long for one."""
    least = MIN_WIDE if chinese.is_chinese(said) else MIN_CHARS
    return _kind(said) if least <= len(said) <= MAX_CHARS else None


# ----------------------------------------------------------------------------------------------- what it is

_OPEN = lazy_re(
    r"(?i)^(?:if|unless|suppose|imagine|assuming|what|which|who|how|why|where|when (?!you )|whether|can|could|would|"
    r"will|should|shall|do|does|"
    r"did|is|are|was|were|may|might|have you|has|had|perhaps|maybe|for example|e\.g\.|let me|lets see|let's see|"
    r"wenn|falls|ob|wer|wie|warum|wo|wann|welche[rsmn]?|kann|können|könnte|soll|sollen|sollten|vielleicht|angenommen|"
    r"gibt|ist|sind|hast|"
    r"si (?!no)|comment|pourquoi|quand|quel(?:le)?s?|est-ce|qui|où|peut-être|"
    r"cómo|qué|por qué|cuándo|dónde|quién|cuál|quizás|tal vez|debería|"
    r"se |come|perché|quando|dove|chi|forse|como|quem|onde|talvez)\b"
)
_HEDGED = lazy_re(
    r"(?i)\b(?:maybe|perhaps|kinda|sorta|kind of|sort of|confused|frustrated|struggling|torn|stuck|stressed|"
    r"overwhelmed|worried|curious|excited|feeling|i mean|looking for|feels? like|perspective|let'?s (?:definitely |"
    r"all )?keep|the following|sounds? like|"
    r"(?:i|we)(?:'ll| will)(?: also| definitely)? (?!be called)|gonna|going to|planning to|might|i think|i guess|"
    r"i suppose|i assume|i believe|probably|possibly|not sure|unsure|wonder(?:ing)?|thinking (?:of|about)|"
    r"considering|i(?:'m| am) trying|i want to|i need to|i(?:'d| would) like to|i wish|i hope|hopefully|let me know|"
    r"seems?|looks like|could be|would be|should be|"
    r"what if|supposed to|in case|for example|apparently|if (?:i|we|you|it|the|he|she|they)|whether|why|"
    r"vielleicht|ich glaube|ich denke|wahrscheinlich|vermutlich|könnte|eventuell|möglicherweise|würde|scheint|wäre|"
    r"peut-être|je crois|je pense|probablement|sans doute|on dirait|pourrait|serait|devrait|"
    r"quizás|quizá|tal vez|creo que|supongo|probablemente|parece|podría|sería|debería|"
    r"forse|penso che|credo che|probabilmente|talvez|acho que|provavelmente)\b"
)
_HEDGED_ZH = lazy_re(
    r"也许|可能|大概|我觉得|我想|好像|是否|如果|要是|假如|能不能|要不要|该不该|会不会|是不是|似乎|怎么|什么|为什么|哪|"
    r"吗|呢"
)
_STANDING = lazy_re(
    r"(?i)^(?:please\s+)?(?:always|never)\b|^(?:do not|don't|please don't) ever\b|\b(?:from now on|going forward|"
    r"henceforth)\b|^in (?:the )?future,|"
    r"\byou (?:should|must|have to|need to) (?:always|never)\b|^(?:whenever|every time|each time) (?:you|i|we)\b|"
    r"^when you (?:write|answer|commit|reply|respond|create|edit|generate|review|run)\b|"
    r"^make sure (?:to |you |that you )?(?:always|never)\b|\bi (?:want|expect|need) you to (?:always|never|only|stop|"
    r"keep|use|answer|write|call|avoid)\b|^(?:remember|don't forget) to (?:always|never)\b|"
    r"^(?:bitte\s+)?(?:immer|nie|niemals)\b|\b(?:ab jetzt|ab sofort|von nun an|von jetzt an|in zukunft|künftig)\b|"
    r"^(?:antworte|schreib|sprich|verwende|benutze|nutze) (?:mir )?(?:bitte )?(?:immer|nie|niemals|stets)\b|"
    r"\b(?:à partir de maintenant|désormais|dorénavant|à l'avenir)\b|^(?:toujours|ne jamais|n'\w+ jamais)\b|"
    r"^\w+(?:-moi)? toujours\b|"
    r"\b(?:a partir de ahora|de ahora en adelante|desde ahora|en adelante)\b|^(?:siempre|nunca|jamás)\b(?! (?:he|"
    r"hemos|ha)\b)|^(?:usa|"
    r"responde|respóndeme|escribe|utiliza) siempre\b|"
    r"\b(?:d'ora in poi|da ora in poi)\b|^(?:sempre|mai|non \w+ mai)\b|^(?:usa|rispondi|scrivi) sempre\b|"
    r"\b(?:a partir de agora|daqui em diante)\b|^(?:use|responda|escreva) sempre\b|"
    r"^(?:以后|从现在起|从今以后|今后|永远|总是|务必|一律|每次)|(?:一律|永远不要|不要再|总是|一定要)"
)
_DECIDED = lazy_re(
    r"(?i)\b(?:we|i|the team|they)(?:'ve| have| had)? (?:decided|agreed|settled|chosen|chose|opted|concluded|"
    r"changed (?:our|my) mind)\b|\b(?:we|i)(?:'re|'ll| are| will|'m| am)? (?:going|go|sticking|stick|staying|"
    r"stay) with\b|"
    r"\blet'?s (?:go|stick|stay) with\b|^(?:new )?decision:|\bit (?:was|is) decided\b|\bwe (?:dropped|reversed|"
    r"scrapped|adopted)\b|"
    r"\bhaben (?:uns|wir)(?: uns)? .{0,80}(?:entschieden|geeinigt)\b|\b(?:entschieden|beschlossen|geeinigt)\b|"
    r"^entscheidung:|\b(?:on a|nous avons|avons|j'ai) (?:décidé|choisi|opté|convenu)\b|^décision\s?:|"
    r"\b(?:hemos decidido|decidimos|acordamos|hemos acordado|optamos|hemos elegido)\b|^decisión:|"
    r"\b(?:abbiamo (?:deciso|scelto)|decidimos|escolhemos|optamos)\b|(?:我们|已经|最后)?决定"
)
_STEPS = lazy_re(
    r"(?i)^(?:in order )?to (?:deploy|release|build|test|publish|install|start|stop|restart|roll ?back|reset|migrate|"
    r"generate|regenerate|launch|set up|log in|connect|back up|restore|lint|format|"
    r"update)\b[^,]{0,80}, (?:you (?:have to |need to |must )?|we |first |just |always |please )?(?:run|use|call|"
    r"execute|type|push|merge|tag|open|press|go|start|set|do|ssh|copy|invoke|make)\b|"
    r"\b(?:we|you) (?:always )?(?:deploy|release|publish|build|test|roll back|start|restart) (?:\S+ ){0,4}?(?:with|"
    r"by|via|using|through|from)\b|^(?:run|execute|call) \S.{0,60} (?:before (?:every|each|any)|after (?:every|each|"
    r"any)|whenever|every time)\b|"
    r"^(?:zum|um) (?:\S+ ){0,5}?(?:deployen|bauen|testen|veröffentlichen|starten|installieren|"
    r"ausrollen)\b.{0,80}(?:ausführen|aufrufen|starten|führe|rufe|muss|nutze|läuft)|"
    r"^pour (?:déployer|publier|construire|tester|lancer|démarrer|installer)\b[^,]{0,60}, ?(?:il faut |on |"
    r"tu dois )?(?:lance|lancer|exécute|exécuter|utilise|utiliser|faut|faire|taper)|"
    r"^para (?:desplegar|publicar|construir|probar|lanzar|iniciar|instalar|arrancar)\b[^,]{0,60}, ?(?:hay que |se |"
    r"tienes que )?(?:ejecuta|ejecutar|usa|usar|corre|lanza|hacer)|"
    r"^(?:per|para) (?:distribuire|pubblicare|compilare|testare|publicar|implantar|compilar)\b[^,]{0,60}, ?(?:esegui|"
    r"eseguire|usa|execute|rode|use)|^(?:部署|发布|上线|构建|测试|启动|安装).{0,20}(?:运行|执行|先|用|要)"
)
_HAPPENED = lazy_re(
    r"(?i)^(?:(?:yesterday|last (?:week|night|month|year|\w+day)|today|this (?:morning|week|month)|on \w+(?: \d+)?|"
    r"in \w+),? )?(?:i|we|my \w+|our \w+)(?:'ve| have)?(?: just| finally| also)? "
    r"(?:got married|got engaged|got divorced|had a baby|gave birth|graduated|launched|released|shipped|passed|"
    r"adopted|bought|sold|broke|visited|signed|won|celebrated|attended|completed|started|moved in|retired|proposed|"
    r"ran (?:a|my)|was born|turned \d+|died|passed away|hired|met|finalized|finalised|booked|joined|finished|"
    r"got promoted)\b"
)
_DATED = lazy_re(
    r"(?i)\b(?:yesterday|today|this morning|last (?:week|night|month|year|weekend|\w+day|spring|summer|autumn|fall|"
    r"winter)|\d+ (?:days?|weeks?|months?|years?) ago|(?:on|in|by|since) (?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|"
    r"nov|dec)\w*|"
    r"on (?:mon|tues|wednes|thurs|fri|satur|sun)day|\b(?:19|20)\d\d\b)"
)
_TASK = lazy_re(
    r"(?i)^(?:please\s+)?(?:fix|add|make|create|update|write|change|remove|implement|run|rerun|check|look|explain|"
    r"refactor|show|tell|help|give|find|open|read|list|move|rename|"
    r"set|put|try|do|don't|do not|test|build|deploy|install|generate|delete|replace|review|let me|go (?:to|ahead|"
    r"through|on|and)|get|see|convert|merge|commit|push|print|start|stop|search|grep|draft|summari[sz]e|translate|"
    r"compare|"
    r"finde|füge|ändere|schreib|schreibe|zeig|zeige|mach|mache|erkläre|prüfe|lösche|erstelle|teste|starte|"
    r"ajoute|corrige|change|écris|montre|fais|explique|supprime|crée|lance|relance|"
    r"añade|corrige|cambia|escribe|muestra|haz|explica|borra|crea|lanza|arregla|"
    r"aggiungi|correggi|scrivi|mostra|spiega|adicione|corrija|escreva|mostre|explique)\b(?!-)"
)
_HERE = lazy_re(
    r"(?i)\b(?:this (?:file|function|test|class|line|bug|error|pr|commit|time|one|case|method|branch|component|page)|"
    r"for now|right now|the following|above|below|just this once|dieser|diese[sm]? (?:datei|funktion|test)|ce fichier|"
    r"este archivo)\b"
)
_PASSING = frozenset(
    "error test tests build bug problem function code output result file line button log script page command issue "
    "message response "
    "variable loop method class compiler diff patch commit trace exception failure warning import parameter argument "
    "answer question thing something everything anyone someone reason idea point way".split()
)
_KEPT = frozenset(
    "dog cat son daughter kid child children brother sister wife husband allergy degree phd boyfriend girlfriend "
    "partner twin baby "
    "hund katze sohn tochter kind kinder bruder schwester chien chat fils fille perro gato hijo hija 2-cats".split()
)
_PREFERRED = lazy_re(
    r"(?i)\b(?:prefer\w*|favou?rite|bevorzug\w+|lieblings\w+|préfère|préférée?|prefiero|favorit\w|preferisco|"
    r"prefiro)\b|"
    r"^(?:please )?use\b|偏好|更喜欢|习惯用"
)
_NO_NAME = frozenset("feel like it from with if than choice when while i you they".split())  # of no thing's name
_NO_LIKING = frozenset(
    "your you how what to when idea approach look way suggestion plan answer option first second one former latter "
    "them him her me us "
    "these those ideas suggestions advice tips help sound sounds work direction version".split()
)


_LABEL = lazy_re(r"[\w./-]+\s?: |\*\*")
_SHOUTED = lazy_re(r"[A-Z]{3,} ")  # TODO, INFO, SELECT: also the API of "API responses should always be JSON"


_STILL = lazy_re(
    r"(?i)\b(?:but|yet|however|and)\b.{0,60}?\b(?:still (?!use|prefer|live|work (?:at|for))\w+|(?:doesn|don|didn|isn|"
    r"won)['’]?t$|"
    r"(?:doesn|don|didn|isn|won)['’]?t (?:work|start|load|show|connect|respond|appear|match)|fails|crashes|breaks)\b"
    r"|^your\b|\b(?:using|use|with) (?:your|the wrong|these)\b"
)


def _kind(said: str) -> MemoryKind | None:
    """Return what kind of statement this is, None when it is none."""
    if (_LABEL.match(said) and not _DECIDED.match(said)) or _STILL.search(said):
        return None
    if said[-1:] not in "?？" and (rule := rule_kind(said)):
        return rule
    if said[-1:] in "?？" or _OPEN.match(said) or _HEDGED_ZH.search(said) or _SHOUTED.match(said):
        return None
    if _HEDGED.search(said) and not _STANDING.match(said):
        return None
    if _STANDING.search(said) and not _HERE.search(said):
        read = claim(said)
        if read is None and len(said.split()) < 3 and said.isascii():
            return None
        return "preference" if not read or _is_own_choice(read) or not _is_solid(read, said) else "fact"
    if _STEPS.search(said):
        return "procedure"
    if _TASK.match(said):
        return None
    return _by_claim(said)


MIN_DECISION_CHARS = 24  # a shorter one says no more than that there was one
_POINTING = lazy_re(
    r"(?i)\b(?:with|on|for|use|take|try) (?:this|that|it|these|those|your|(?:the )?"
    r"(?:first|second|third|last|other|option|idea|plan))\b"
)


def _by_claim(said: str) -> MemoryKind | None:
    """Return the kind of a statement that only what it claims makes one."""
    read = claim(said)
    is_solid = read is not None and _is_solid(read, said) and not (_HERE.search(said) and not read.changed)
    if _DECIDED.search(said) and not _POINTING.search(said) and (is_solid or len(said) >= MIN_DECISION_CHARS):
        return "decision"
    if _POINTING.search(said) and (read is None or read.attribute == "uses"):
        return None
    if read is not None and is_solid:
        if kind_by_form(said) == "decision":
            return "decision"
        return "preference" if _PREFERRED.search(said) or _is_liking(read) else "fact"
    if _HAPPENED.search(said) and _DATED.search(said):
        return "event"
    return None


def _is_liking(read: Claim) -> bool:
    """Return whether a claim is about what somebody likes, or how they want something."""
    return read.attribute.startswith("preferences/") or read.attribute in ("likes", "instructions")


def _is_own_choice(read: Claim) -> bool:
    """Return whether a claim is about what somebody likes, wants or has chosen."""
    is_ours = read.entity in ("user", "project") and (read.attribute == "uses" or words.is_category(read.attribute))
    return is_ours or _is_liking(read)


_HABIT = lazy_re(r"(?i)\b(?:usually|always|every (?:day|morning|evening|night|week)|normally|typically|most days)\b")


def _is_passing(read: Claim, said: str) -> bool:
    """Return whether a claim is about nothing that has a name, or tells what once happened to it."""
    entity = read.entity.split("-")
    if _NO_NAME & set(entity) or entity[0][:1].isdigit() or len(entity) > 5 or len(read.value) > 80:
        return True
    if len(entity) == 1 and entity[0] in _PASSING:
        return True
    return read.attribute.endswith(("-by", "-to")) and (not read.single or " was " in said or entity == ["project"])


def _is_solid(read: Claim, said: str) -> bool:
    """Return whether a claim holds beyond the moment: not "the build is red", "the test is in that file"."""
    entity, attribute = read.entity.split("-"), read.attribute
    if _is_passing(read, said):
        return False
    if attribute == "likes":
        return not _NO_LIKING & {w.lower() for w in read.value.split()} and len(read.value.split()) <= 8
    if attribute in ("state", "is", "keep", "takes", "goes", "take", "go"):
        return False
    if attribute in ("value", "location", "platform"):
        is_place = attribute == "location" and len(entity) == 1 and read.value.split()[-1][:1].isupper()
        is_news = read.changed or bool(read.old_value)
        return is_place or (is_news and any(c.isdigit() or c.isupper() for c in read.value))
    if attribute == "has" and entity == ["user"] and _HABIT.search(said):
        return True
    if attribute == "has" or attribute.startswith("n-"):
        return bool(_KEPT & {words.noun(w) for w in (*read.value.split(), attribute[2:])})
    if attribute == "instructions":
        return bool(read.old_value) and not read.value.lower().startswith(("see", "undo"))
    if attribute == "uses":
        return len(read.value.split()) <= 4
    return True
