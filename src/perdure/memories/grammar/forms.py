"""Forms of sentences that state something lasting, also where no claim can be read from them. Pure.

A form tells by how a statement begins and by its verb that it holds beyond the moment: a rule for all of a kind, what
somebody has set up, uses, knows or settled on, where a thing lies or what it depends on, a date, a finding with its
number. What reports a fault, hopes or points at the matter at hand has none. Every expression is bounded, so that
reading a sentence is linear in its length.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from perdure.regex import lazy_re
from perdure.types import MemoryKind

_SAY = (
    r"(?:(?:already|also|always|both|currently|finally|generally|just|mainly|mostly|normally|now|only|recently|since|"
    r"still|successfully|usually)\s+){0,3}"
)
_ME = r"(?:i|we|the team|my team)"
_BE = rf"{_ME}(?:['’]?(?:m|re)| am| are|(?:['’]ve| have)(?: (?:also|always|mostly|only))? been)?\s+{_SAY}"
_DO = rf"{_ME}\s+{_SAY}"
_DID = rf"{_ME}(?:['’]?ve| have)?\s+{_SAY}"
_THESE = (
    r"(?:it|this|that|them|these|those|everything|all|some|one|your|both|the (?:\w+ )?(?:task|steps?|parts?|changes?|"
    r"fix|rest|files?|tests?|work|following|first|second|last|other|above|below)|(?:option|number|step|plan|idea)\b)"
)
_NOT_THESE = rf"(?!\s*{_THESE}\b)"
_DONE = (
    r"(?:set up|completed|finali[sz]ed|finished|enabled|disabled|installed|deployed|released|tagged|published|"
    r"launched|registered|migrated|standardi[sz]ed on|defined|reserved|booked|bought|signed up|hired|onboarded|"
    r"set (?=\S*[A-Z_`])|put (?=.{1,60}\b(?:in|on|under|into)\b))"
)
_MADE = r"(?:created|added|built|made|opened|put|stored)\b(?! an? (?:new )?file).{1,80}\b(?:called|named)\s\S"
_VERB = (
    r"(?:uses?|supports?|requires?|depends? on|runs? on|runs? as|runs? under|lives? (?:in|at|under|on|next to|beside)|"
    r"belongs? to|talks? to|connects? to|speaks?|stores?|inherits? from|relies on|rely on|comes? from|consists? of|"
    r"(?:is|are) (?:part of|based on|built (?:with|on|in)|written in|hosted (?:on|at|by|in)|maintained by|generated "
    r"(?:by|from)|deployed (?:to|on|by|with|from|via)|stored (?:in|on|under|at)|owned by|kept (?:in|on|under)|"
    r"responsible for|called|named|limited to|compatible with|incompatible with|served (?:by|from))|"
    r"ha(?:s|ve) nothing to do with|(?:does not|doesn['’]?t|do not|don['’]?t) (?:need|support|use|require|depend on|"
    r"have access to))"
)
_NO_SUBJECT = (
    r"(?!(?:i|it|its|that|this|these|those|you|your|they|he|she|we|there|here|what|which|who|how|why|where|when|if|"
    r"whether|and|but|or|so|not|no|nothing|everything|something|someone|anyone|please|can|does|do|did|is|are|was|were|"
    r"will|would|could|should|also|then|now|still|just|like|lets?|let['’]s|because|since|as|for|in|on|at|by|to|of|with|"
    r"(?:(?:the|our|my|your) (?:\w+ )?(?:errors?|bugs?|tests?|problems?|issues?|fix|diff|change|patch|function|"
    r"answer|output|result|logs?|screenshots?|image|video|trace|pr|pull request|ticket|link|command|line|code|build|"
    r"step|task|button|page|files?|implementation|solution|approach|version|method|class)))\b)"
)
_SUBJECT = (
    rf"{_NO_SUBJECT}(?:(?:the|our|my|all|all our|all the|both)\s+(?:[\w./'’-]{{1,40}}\s+){{1,5}}?|[\w./-]{{2,40}}\s+)"
)
_MANY = r"(?:every|each|all|any)\s+(?!(?:of|these|those|this|that|the|tests?|time|times)\b)(?:[\w/'’-]{1,30}\s+){1,7}?"
_PLACE = r"[`\"]?(?:~/|\.{1,2}/|/[\w.]|https?://|[\w.-]{1,40}/[\w.-])"
_NO_ONE = (
    r"(?:problems?|worr\w+|idea|luck|changes?|difference|errors?|way|thanks?|need|rush|one|longer|matter|such|clue|"
    r"results?|output|response|reason|doubt|wait|warnings?|failures?|issues?|wonder|point|it|that|this|not|i|we|you|"
    r"please|more (?:errors?|issues?|problems?|questions?)|questions?|effect|news|success|progress|data|tests?|signs?)"
)
_ROLE = (
    r"(?:girlfriend|boyfriend|wife|husband|partner|fianc[eé]e?|friend|colleague|co-?worker|boss|manager|mentor|brother|"
    r"sister|mother|mum|mom|father|dad|son|daughter|cousin|aunt|uncle|niece|nephew|neighbou?r|producer|editor|doctor|"
    r"teacher|intern|assistant|lead|client|landlord|coach|roommate|flatmate|cto|ceo|cofounder|co-founder)"
)
_DATE = (
    r"(?:(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]{0,6}\.? \d{1,2}\b|\d{1,2}(?:st|nd|rd|th)?"
    r"(?: of)? (?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]{0,6}\b|\b20\d\d-\d\d-\d\d\b|\bq[1-4]\b)"
)
_DUE = (
    r"(?:(?:starts?|begins?|ends?|opens?|closes?|ships?|launch(?:es)?|targets?|runs?|finish(?:es)?|lands?|goes live|"
    r"go live|expires?|moves?|is due|are due|is planned|is scheduled|is set|was moved|moved|has moved)\b|"
    r"\bdeadline\b|\bdue\b)"
)
_NUMBER = r"[$€£]?\d[\d.,]*\s?(?:%|percent|[mµn]?s\b|[a-zA-Z]{1,12}\b)?"
_FELL = (
    r"(?:reduc|improv|cut|lower|decreas|increas|rais|dropp?|speeds? up|sped up|shr[aiu]nk|went (?=from\b)|went down|"
    r"went up|f[ae]ll|"
    r"rose|"
    r"grew|sav|brought|shorten|halv|doubl)(?:ed|e|es|s|en|ing|down)?\b"
)


def _forms(table: Iterable[tuple[MemoryKind, str]]) -> tuple[tuple[MemoryKind, re.Pattern[str]], ...]:
    return tuple((kind, lazy_re(rf"(?i){expression}")) for kind, expression in table)


_RULES = tuple(  # how all of a kind is to be: what goes wrong or is hoped does not matter in them
    lazy_re(rf"(?i){expression}")
    for expression in (
        rf"^{_MANY}(?:needs?(?! to be )|must|should(?! (?:do|be (?:like|the))\b)|ha(?:s|ve) to|gets?|requires?|(?:is|"
        rf"are) (?:always|never|required|named|"
        rf"kept))\b",
        rf"^{_NO_SUBJECT}[\w /'’-]{{2,60}}? (?:must|should|may|can|has to|have to|needs? to) (?:always|never|"
        rf"only ever)\b",
        rf"^{_NO_SUBJECT}[\w /'’-]{{2,60}}? (?:must|should|may) not (?!be (?:the|like|that|so|too)\b)\w+ (?!this\b|"
        rf"that\b).{{3,}}",
        r"^(?!the |these |those |this |that |my |our |tests? )(?:[\w-]{1,30} ){0,2}[\w-]{2,30}s (?:must (?:have|be|"
        r"not|include|start|end|use|"
        r"follow|pass|go|live)|should be \w+(?:ed|en|wn), not|needs? (?:two|three|four|\d+|at least|no|approval|"
        r"an? approv\w+))\b.{2,}",
        r"\b(?:is|are) (?:not|never|strictly) (?:allowed|permitted|acceptable)\b|\b(?:is|are) (?:forbidden|mandatory|"
        r"off[- ]limits|banned|prohibited)\b",
        r"^(?:if|when|whenever|where|only (?:if|when|where)|unless) (?:there(?:['’]?s| is| are) (?:any|an?|no) |"
        r"an? (?!user)|any |"
        r"every |each |all |no |the [\w-]+ (?:is|are) ).{3,160}?(?:,|then| we| you) .{0,60}?(?:\b(?:always|never)\b|"
        r"\b(?:should|must)(?: not)? (?!work|look|pass|fail)\w+|\bno [\w-]+(?: [\w-]+)? (?:is|are) (?:needed|allowed|"
        r"necessary)"
        r"|\b(?:don['’]?t|do not) (?!work|seem|know|think)\w+)",
        r"^(?:alle|jede[rs]?|sämtliche) (?:\S+ ){1,6}?(?:müssen|muss|sollen|soll|brauchen|braucht|dürfen|darf)\b.{3,}"
        r"(?<!jetzt laufen)$",
        r"^(?:tous les|toutes les|chaque) (?:\S+ ){1,6}?(?:doivent|doit|ont besoin|a besoin|nécessite)\b",
        r"^(?:todos los|todas las|cada|todas as|todos os|ogni|tutti i|tutte le) (?:\S+ ){1,6}?(?:deben?|tienen? que|"
        r"necesitan?|devem?|precisam?|devono|deve)\b",
        r"^(?:所有|每个|每次|任何)[^，。]{1,30}(?:必须|都要|都得|应该|不能|不得)|^(?:禁止|严禁|不允许|不要在)[^，。]{2,}",
    )
)
_WISHES = tuple(  # rules for who is spoken to
    lazy_re(rf"(?i){expression}")
    for expression in (
        r"^(?:please )?(?:make sure|be sure|remember|take care|don['’]?t forget)\b.{3,200}\b(?:every time|each time|"
        r"whenever|before (?:each|every|any)|after (?:each|every|any)|in (?:every|all|each|any)|always|never)\b",
        r"^(?:please )?(?:do not|don['’]?t|never) ever\b|^only ever\b|^(?:please )?only (?:use|write|commit|"
        r"answer) .{3,90} "
        r"(?:for|when|in) (?!this\b|that\b|these\b|here\b)",
        rf"^no (?:more )?(?!{_NO_ONE}\b)[\w-]{{3,30}}(?: [\w-]{{2,30}}){{0,3}} (?:in|inside|on|outside|without|from|"
        rf"anywhere)"
        r"\b(?! (?:this|that|here|the|my|our|it|there)\b).{2,60}$",
        rf"^no (?:more )?(?!{_NO_ONE}\b)(?:[\w-]{{3,30}} ){{1,3}}?[\w-]{{2,30}}s(?<!the \w)(?:,? please)?[.!]{{1,3}}$|"
        rf"^no (?:more )?(?!{_NO_ONE}\b)[\w-]{{3,30}}s(?:,? please[.!]?|!{{1,3}})$",
        rf"^no (?:more )?(?!{_NO_ONE}\b)(?:[\w-]{{3,30}} ){{0,3}}?[\w-]{{3,30}}s,? please[.!]?$",
        r"^when in doubt\b.{4,}|^if (?:in doubt|unsure|you(?:['’]?re| are) (?:ever )?(?:unsure|not sure|"
        r"in doubt))\b.{4,}",
        r"^(?:for|in|on|with) (?:all|every|each|any) (?:future|new|later) .{3,60}, (?!can|could|how|what|do we|"
        r"should we)\S.{3,}",
        r"^i['’]d rather (?!not\b|you\b|we\b|it\b|this\b|that\b|wait\b|see\b)\S.{5,}",
        r"^(?:please |pls )?(?:prefer \S.{1,80} (?:over|to|instead of|rather than)|avoid (?:using |adding |"
        r"writing )?[\w-]+(?:s|ing)"
        r"\b)(?! (?:this|that|these|here)\b).{2,}",
        r"^(?:please |pls )?(?:do not|don['’]?t|never|stop) (?:add|us|writ|commit|push|includ|putt?|ask|generat|"
        r"creat)(?:ing|e)? "
        r"(?:(?:any|more|so many|extra|new) )?(?:[\w-]{2,30} ){0,2}?(?!this|these|tests)[\w-]{3,30}s\b(?! (?:yet|now|"
        r"this|these)\b)",
        r"^(?:please |pls )?(?:do not|don['’]?t) \w+ .{0,60}\b(?:unless i|without (?:asking|my)|for me$|on your own|"
        r"by yourself)\b",
        r"^(?:please |pls )?(?:always )?(?:ask|check with me|confirm)(?: me)?(?: first)? before \w+ing\b",
        r"^(?:please |pls )?keep (?:your |all |the )?(?:answers?|replies|responses|comments|commits|commit messages|"
        r"functions|"
        r"messages|explanations|summaries|prs) .*\b(?:short|brief|concise|under|below|within|small|minimal|terse|"
        r"to \w+)\b",
        r"^(?:please |pls )?stick (?:to|with) (?!this\b|that\b|it\b|your\b|option\b|the (?:plan|first|second|current|"
        r"last)\b)\S.{3,}",
        r"^(?:please |pls )?use \S.{2,60} (?:everywhere|throughout|by default|for (?:all|every|each|any|"
        r"new)(?! of (?:these|those|them|it)\b)|"
        r"in (?:all|every|new))\b",
        r"^i want (?:all|every|each) (?!of\b|these|those|the)\S.{5,}",
        r"^(?:bitte )?keine? (?:\S+ ){1,3}?(?:im|in|bei|mehr)\b.{2,}|^(?:bitte )?(?:verwende|nutze|benutze|schreib|"
        r"schreibe) "
        r"(?:\S+ ){0,3}?keine?\b.{3,}|^(?:s['’]il te pla[iî]t,? )?pas d(?:e |['’])\S+ dans .{2,}|^n['’](?:utilise|"
        r"ajoute) (?:pas|jamais) "
        r".{3,}|^(?:por favor,? )?no (?:uses|añadas|escribas|pongas) .{3,}|^non usare .{3,}|^não use .{3,}",
        r"^(?:请)?(?:不要|别)(?:使用|用|加|写|添加|提交)(?!这)[^，。]{2,}",
    )
)
_PLAIN = _forms(
    (
        ("preference", rf"^(?:i|we) (?:really |still |usually |generally |personally |much |definitely ){{0,2}}prefer\b"
         rf"{_NOT_THESE}(?! to not\b| not to\b)\s\S.{{3,}}"),
        ("fact", rf"^(?:my|our) (?:[\w-]+ ){{0,2}}?{_ROLE},? (?-i:[A-Z][a-z]+)\b(?! (?:says|said|thinks|wants|asks|"
         rf"asked)\b).{{6,}}"),
        ("fact", rf"^(?:i|we)(?:['’]ve got| have got| have|['’]ve| got) (?:an?|my|our|the|two|three|four|"
         rf"\d+) .{{3,120}}?"
         rf"(?:\b(?:on|by|at|until|for|of|from) (?:\S+ ){{0,3}}?{_DATE}|\b(?:budget|limit|salary|"
         rf"income) of .{{0,20}}\d|"
         rf",? {_ROLE}\b.{{0,30}}(?-i:[A-Z][a-z]+))"),
        ("event", rf"^(?:{_DID}|(?-i:[A-Z][a-z]+) (?:and I )?)(?!tried|need|want|used to)(?:\w+ed|met|began|started|"
         r"bought|sold|paid|got|went|won|lost|left|took|made|gave|ran|held|built|wrote|read|had|spoke|spent|cut|set|"
         r"put|"
         rf"hit|told|chose|found|became|felt|sent|saw|taught|led) .{{2,160}}?(?:\b(?:on|in|by|since|until|from|at) |, )"
         rf"(?:\S+ ){{0,2}}?{_DATE}"),
        ("fact", r"^(?:i|we)(?:['’]ve| have) been (?!trying|getting|having|staring|struggling|waiting|debugging|"
         r"thinking|"
         rf"dealing|wondering|looking)\w+ing .{{2,160}}?(?:\bsince (?:\S+ ){{0,2}}?(?:{_DATE}|\d{{4}})|\bfor (?:over |"
         r"about |almost |the (?:last|past) )?(?:\d+|a few|two|three|four|five|several|many) (?:days|weeks|months|"
         r"years))"),
        ("decision", rf"^let['’]?s (?:schedule|hold|set|plan|meet|move|push|release|ship|launch|start) .{{0,100}}?"
         rf"(?:{_DATE}|\b(?:mon|tues|wednes|thurs|fri|satur|sun)day\b)"),
        ("event", rf"^{_DID}(?:{_DONE}{_NOT_THESE}(?!\s*the \w+(?: to \w+)?[.!]?$)\s*\S.{{3,}}|(?!\w+ (?:it|this|"
         rf"that|them)\b){_MADE})"),
        ("decision", rf"^{_DID}(?:decided|settled|chosen|picked|opted|standardi[sz]ed|agreed)\b(?: (?:on|for|to))?"
         rf"{_NOT_THESE}\s\S.{{3,}}"),
        ("decision", r"^let['’]?s (?:just |all )?(?:rename|call|name)\b(?! it (?:an?|quits|off)\b).{1,60}?(?:\bto\b|"
         r"\bit\b|\bas\b|\bnew\b|"
         r"\bthe\b)\s"
         r"(?:\S+ ){0,3}\S*[a-z]{3,}"),
        ("decision", r"^i (?:want|need|expect) (?:the|all|our|my|every|each) (?:[\w-]+ ){1,5}?(?:to )?(?:live|"
         r"use|follow|run)\b.{3,160}\b(?:not|never|always|instead of|rather than|only|because)\b"),
        ("fact", r"(?:^|, (?:which|that|where) )(?:i|we)(?:['’]?ve| have) never (?:actually |really |ever |even )?"
         r"(?!seen|understood|mind|get|got\b|heard|works?\b|kn[eo]w)"
         r"\w+\b.{4,}"),
        ("fact", rf"^{_ME}(?:['’]?m|['’]?re| am| are) (?:(?:very|really|quite|more|fairly|pretty|completely|totally|"
         r"not|not very) ){0,2}(?:new to|familiar with|experienced (?:in|with)|comfortable with|fluent in|"
         rf"responsible for|in charge of|a beginner (?:in|with|at)){_NOT_THESE}\s\S{{3,}}"),
        ("fact", r"^(?:i|we)(?:['’]?ve| have)? (?:got )?(?:\w+ ){1,3}years? of experience\b|^(?:i|we)(?:['’]?ve| have) "
         r"(?:been |worked ).{3,80}\b(?:for|since) .{0,20}(?:years?|months?|\d{4})\b"),
        ("fact", rf"^{_BE}working on (?!an? (?:\w+ )?(?:fix|bug|issue|patch|pr|ticket)\b)(?:an?|my|our|sprint|"
         rf"version|the [\w-]+ (?:project|app|service|team|rewrite|"
         r"migration))\b.{3,}\b(?:for|with|to|in|which|that|called|by|of|project)\b"),
        ("fact", rf"^{_SUBJECT}{_SAY}{_VERB}(?!\s+(?:it|this|that|them|too|the (?:wrong|same|old))\b)\s\S.{{2,}}"),
        ("fact", r"^we (?:don['’]?t|do not|always|never|only|usually|mostly|normally|generally|no longer) (?!know|"
         r"have|see|need to|"
         r"want|get|seem|think|understand|remember|care|mind|said|saw|had|did)\w+\b.{3,}|^i (?:always|usually|"
         r"normally|typically|"
         r"mostly|generally) (?!said|saw|got|had|did|mean|see|want|need|get|feel|think)\w+\b.{3,}"),
        ("fact", rf"^(?:we|our team) (?:follow|pin|deploy|ship|release|sign|squash|rebase|track|publish|tag|version|"
         rf"mirror|rotate|"
         rf"review|document|lint|host)\b{_NOT_THESE}\s\S.{{2,}}"),
        ("fact", r"^(?:we|our|the|all)\b.{2,80}\b(?:every|each|once an?|twice an?) (?:\d+ |second |other )?(?:hours?|"
         r"days?|weeks?|"
         r"months?|years?|morning|evening|night|sprint|release|quarter|(?:mon|tues|wednes|thurs|fri|satur|sun)day)\b"),
        ("fact", r"^(?:i|we)(?:['’]?m|['’]?re| am| are) (?:an?|the)(?! (?:bit|little|tad|lot|few|fan|same|one|huge|"
         r"big)\b) .{0,60}"
         r"\b(?:of|at|for|from|based|team|company|startup|developer|engineer|maintainer|student|beginner)\b"),
        ("fact", rf"^(?:the|our) (?:new )?(?:[\w-]+ )?{_ROLE} is (?-i:[A-Z][a-z]+)"),
        ("fact", rf"^(?:we|our|the|{_NO_SUBJECT}[\w-]+)\b.{{2,60}}?\b(?:runs?|happens?|rotates?|syncs?|deploys?|"
         rf"is run|are run) "
         r"(?:nightly|daily|weekly|monthly|hourly)\b"),
        ("fact", r"^my (?:[\w-]{2,20} ){0,2}(?:name|handle|username|login|email|account|address|number|id|title|role|"
         r"team|company|"
         r"laptop|machine|shell|goal|budget|background|field) is (?!not\b|in\b|on\b|broken|to\b|that\b|this\b|"
         r"it\b)\S.{1,}"),
        ("fact", r"^(?:wir|ich) \w+ .{0,40}\bjede[nrms]? \w+|^(?:nous|on|je) \S+ .{0,40}?\btou(?:s|tes) les \w+|"
         r"^\w+mos .{0,40}?"
         r"\b(?:todos los|cada) \w+"),
        ("fact", r"^(?:der|die|das|unsere?) (?:\S+ ){1,3}?(?:läuft nur|unterstützt|benötigt|verwendet|nutzt)\s.{3,}|"
         r"^(?:le|la|l['’]"
         r"|notre|les|nos) ?(?:\S+ ){1,3}?(?:utilise|supporte|dépend de|tourne sur|nécessite)\s.{3,}|^(?:el|la|"
         r"nuestr[oa]|los) "
         r"(?:\S+ ){1,3}?(?:usa|soporta|depende de|corre en|requiere)\s.{3,}"),
        ("fact", rf"^{_NO_SUBJECT}[\w.'’ -]{{2,60}}? {_SAY}(?:is|are|lives?|sits?|goes?|stays?|belongs?|can be found) "
         rf"{_SAY}(?:at|in|under|inside|on) {_PLACE}"),
        ("fact", rf"^{_NO_SUBJECT}.{{3,120}}?{_DUE}.{{0,60}}{_DATE}"),
        ("fact", rf"^{_DID}(?:tested|measured|benchmarked|profiled|timed|estimated|"
         rf"counted)\b.{{3,120}}?\d[\d.,]*\s?(?:%|[mµn]?s\b|"
         r"[kmg]i?b\b|seconds?|minutes?|hours?|percent|x\b)"),
        ("fact", r"\b(?:i|we)(?:['’]ve| have)? (?:come|came) up with (?:about |around )?\d"),
        ("event", r"^ich habe? (?:\S+ ){1,10}?(?:eingerichtet|abgeschlossen|fertiggestellt|aktiviert|"
         r"veröffentlicht)\b"),
        ("event", r"^(?:j['’]ai|nous avons|on a) (?:terminé|fini|configuré|activé|déployé|publié|installé|"
         r"mis en place)\s"
         r"(?!ça|cela|tout).{4,}"),
        ("event", r"^(?:ya )?(?:he|hemos) (?:terminado|completado|configurado|activado|desplegado|publicado|"
         r"instalado)\s"
         r"(?!eso|esto|todo).{4,}"),
        ("fact", r"^(?:ich habe|wir haben) (?:noch )?nie (?:\S+ ){0,8}?(?:gearbeitet|benutzt|verwendet|genutzt|"
         r"geschrieben)\b|"
         r"^je n['’]ai (?:encore )?jamais (?:utilisé|travaillé|touché|écrit)\b|^(?:nunca|jamás) (?:he|"
         r"hemos) (?:trabajado|"
         r"usado|utilizado|escrito)\b|^non ho mai (?:usato|lavorato)\b|^nunca (?:usei|trabalhei)\b"),
        ("fact", rf"^(?:der|die|das|unsere?|meine?) (?:\S+ ){{1,5}}?(?:liegt|liegen|steht|stehen) (?:unter|in|im|"
         rf"auf) {_PLACE}|"
         rf"^(?:le|la|les|notre|nos|mon|ma|l['’]\S+) (?:\S+ ){{1,5}}?(?:est|sont|se trouve) (?:dans|sous|à) {_PLACE}|"
         rf"^(?:el|la|los|las|nuestro|nuestra|mi) (?:\S+ ){{1,5}}?(?:está|están) en {_PLACE}"),
    )
)  # fmt: skip
_NAMED = _forms(  # these also have to name something, or a number
    (
        ("fact", rf"^{_NO_SUBJECT}our (?:[\w-]{{1,30}} ){{1,3}}?(?:is|are) (?!in\b|not\b|on\b|"
         rf"at\b)(?P<what>\S.{{2,}})"),
        ("fact", rf"^{_BE}(?:using|on (?=\S+ v?\d)|hosting|targeting|writing|running|deploying to|building (?:with|"
         rf"on)){_NOT_THESE}"
         r"(?P<what>\s\S.{2,})"),
        ("fact", rf"^{_DO}(?:use|run|host|deploy|store|keep|ship|support|target){_NOT_THESE}(?P<what>\s\S.{{2,}})"),
        ("fact", r"^(?:i|we)(?:['’]ve| have) got (?P<what>\S.{2,} (?:set up|installed|running|configured))\b"),
        ("preference", rf"^for (?!this\b|that\b|these\b|those\b|now\b|example\b)(?:(?:the|our|all|any) )?"
         rf"(?:[\w-]{{2,30}} ){{0,2}}?[\w-]{{2,30}},? (?:please )?(?:always )?use{_NOT_THESE}(?P<what>\s\S.{{2,}})"),
        ("decision", r"^let['’]?s (?:just )?(?:use|adopt|go with|stick (?:with|to)|keep|move to|switch to|drop|ditch|"
         r"target|"
         rf"support|standardi[sz]e on){_NOT_THESE}(?P<what>\s\S.{{2,}})"),
        ("decision", rf"^(?:i|we)(?:['’]?ll| will|['’]?re going to|['’]?m going to) {_SAY}(?:use|go with|"
         rf"stick (?:with|to)|"
         rf"stay (?:on|with)|keep|support|target|adopt|move to|switch to|deploy to){_NOT_THESE}(?P<what>\s\S.{{2,}})"),
        ("decision", rf"^(?:i|we)(?: want to|['’]d like to| would like to| plan to|['’]?m planning to|"
         rf"['’]?re planning to|"
         rf" are planning to) (?:use|adopt|go with|deploy to|host on){_NOT_THESE}(?P<what>\s\S.{{2,}}? (?:for|as|"
         rf"instead "
         r"of|over|rather than) .{3,})"),
        ("decision", r"^(?:wir|ich) (?:bleiben?|gehen?) (?:bei|mit)(?P<what>\s\S.{2,})|^(?:nehmen wir|wir nehmen)"
         r"(?P<was>\s\S.{2,})"),
        ("decision", r"^(?:on|nous) (?:garde|part sur|reste sur|gardons|restons sur)(?P<what>\s\S.{2,})"),
        ("decision", r"^(?:nos quedamos con|vamos con|seguimos con|ci teniamo|restiamo con|"
         r"ficamos com)(?P<what>\s\S.{2,})"),
    )
)  # fmt: skip
_FOUND = lazy_re(
    rf"(?i)\b{_FELL}(?:.{{1,80}}?\b(?:from {_NUMBER} (?:down |up )?to (?:around |about |only |under )?{_NUMBER}|"
    rf"by (?:around |"
    rf"about |over |nearly |almost )?{_NUMBER})|.{{0,60}}?\bto (?:around |about |only |under |just )?[$€£]?\d[\d.,]*\s?"
    r"(?:%|[mµn]?s\b|[kmg]i?b\b|seconds?|minutes?|hours?))"
    rf"|(?i:\bnow (?:takes?|uses?|needs?) (?:only )?{_NUMBER}.{{0,30}}?(?:instead of|down from|"
    rf"rather than)\b.{{0,10}}\d)"
)
_AIM = lazy_re(
    r"(?i)\b(?:want|trying|try|need|like|plan|planning|hope|help|goal|aim\w*|going|how|have|ways?|order|is|are|us|me|"
    r"you|please|"
    r"must|can|will) (?:(?:to|is to|make sure (?:i|we|it)) )?$|^$|\bto $"
)
_FAULT = lazy_re(
    r"(?i)\b(?:errors?(?! (?:handling|pages?|codes?|messages?|reports?))|exceptions?|fail(?:s|ed|ing)?|crash\w*|broken|"
    r"wrong\w*|incorrect\w*|problems?|trouble|bugs?|stuck|weird\w*|(?:doesn|don|didn|isn|wasn|won)['’]?t (?:work|seem|"
    r"look|match|appear|show|load|start)\w*|not working|can['’]?t|cannot|couldn['’]?t|unable|instead of the|wtf|shit|"
    r"fuck\w*|"
    r"too (?:much|many|long|big|small|slow|high|low)|missing|down(?! to)|no longer works?|keeps? \w+ing|sometimes|"
    r"behoben|schlägt|fehlgeschlagen|échoue|falla|fehler|corrigé|arreglado|erreur)\b"
)
_HOPE = lazy_re(
    r"(?i)\b(?:maybe|perhaps|might|kinda|kind of|curious|wondering|considering|thinking (?:of|about)|i (?:think|"
    r"guess|suppose|assume|believe|wonder|hope)|probably|possibly|not sure|"
    r"unsure|"
    r"seems?|looks like|could|would(?! like)|should|what if|supposed to|for example|apparently|if (?:i|we|you|it|the)|"
    r"whether|says?|said|hopefully|i wish|ideally|vielleicht|peut-être|quizás?|tal vez|forse|talvez)\b"
)
_HERE = lazy_re(
    r"(?i)\b(?:for now|for this (?:task|test|one|step|run|pr|fix)|this time|(?:in|to|from|with|on) this (?:file|"
    r"function|test|case|step|pr|commit|module|branch|class|component|page|"
    r"task)|just this once|for a (?:second|moment|bit)|right now|real quick|the following)\b|\bhere[.!]?$"
)
_NAME = lazy_re(r"[A-Z0-9`~]|\w[_./]\w|\w-\w+\d")


def kind_by_form(said: str) -> MemoryKind | None:
    """Return what kind of lasting statement a sentence is by its form alone, but for rules; None where it has none.

    >>> kind_by_form("we'll go with Postgres 16 for the search"), kind_by_form("we'll see")
    ('decision', None)
    """
    if _FAULT.search(said) or _HOPE.search(said) or _HERE.search(said):
        return None
    named = next((kind for kind, form in _NAMED if (m := form.match(said)) and _is_named(m)), None)
    return named or next((kind for kind, form in _PLAIN if form.search(said)), None) or _finding(said)


def _finding(said: str) -> MemoryKind | None:
    """Return fact where a sentence says by how much something changed; not where that is what is aimed at."""
    found = _FOUND.search(said)
    return "fact" if found and not _AIM.search(said[: found.start()]) else None


def rule_kind(said: str) -> MemoryKind | None:
    """Return what kind of standing rule a sentence is: how all of a kind is to be, or how who is spoken to is to act.

    >>> rule_kind("Every commit must be signed"), rule_kind("no emojis in titles"), rule_kind("no luck with the cache!")
    ('procedure', 'preference', None)
    """
    if _HERE.search(said):
        return None
    if any(wish.search(said) for wish in _WISHES):
        return "preference"
    return "procedure" if any(rule.search(said) for rule in _RULES) else None


def _is_named(match: re.Match[str]) -> bool:
    """Return whether what is used or chosen has a name or a number."""
    what = match.groupdict()
    return bool(_NAME.search(what.get("what") or what.get("was") or ""))
