"""What a language needs to be read by rules: its pronouns, its verbs and what they relate, its small words. Pure data.

A verb phrase names a relation; `claims` knows what each means. `I` and `we` before a relation say who the subject is
when the phrase carries it itself ("vivo en"), `go` stands for an imperative. Phrases are in lower case.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache

I = "user"  # noqa: E741  the person who speaks
WE = "project"  # those the person speaks for


Verbs = dict[str, list[tuple[tuple[str, ...], str, str]]]


@dataclass(frozen=True)
class Grammar:
    """The words of one language, each as `claims` looks it up."""

    language: str
    pronouns: dict[str, str]  # "i" -> user
    owners: dict[str, str]  # possessive -> whose; "" is the one spoken of
    articles: frozenset[str]
    of: frozenset[str]
    near: frozenset[str]  # prepositions that add to what a noun phrase names
    to: frozenset[str]
    origin: frozenset[str]  # "from"
    no: frozenset[str]
    now: frozenset[str]  # says that it was different before
    skip: frozenset[str]  # adverbs and auxiliaries that say nothing
    stops: frozenset[str]  # ends a value and opens another clause
    instead: tuple[tuple[str, ...], ...]  # "instead of": what follows is the old value
    leads: dict[str, list[tuple[str, ...]]]  # what may stand before a statement, by its first word
    verbs: Verbs  # first word -> (phrase, relation, implied subject), longest phrase first
    known: frozenset[str] = field(default_factory=frozenset)  # all its words, to tell languages apart


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


def _phrases(listed: str) -> tuple[tuple[str, ...], ...]:
    return tuple(sorted((tuple(p.split()) for p in listed.split(",") if p.strip()), key=len, reverse=True))


def _by_first(phrases: tuple[tuple[str, ...], ...]) -> dict[str, list[tuple[str, ...]]]:
    """Return phrases by their first word, in the order given."""
    found: dict[str, list[tuple[str, ...]]] = {}
    for phrase in phrases:
        found.setdefault(phrase[0], []).append(phrase)
    return found


def _pairs(listed: str) -> dict[str, str]:
    """Return word -> meaning of "meaning: word word" lines."""
    found = {}
    for line in _joined(listed):
        meaning, _, words = line.strip().partition(":")
        found.update(dict.fromkeys(words.split(), meaning))
    return found


def _joined(listed: str) -> list[str]:
    """Return the lines of a table; one without a colon goes on with the line before it."""
    lines: list[str] = []
    for line in listed.strip().split("\n"):
        if ":" in line:
            lines.append(line.strip())
        else:
            lines[-1] += " " + line.strip()
    return lines


def _verbs(listed: str) -> Verbs:
    """Return the phrases of "relation [subject]: phrase, phrase" lines by their first word, the longest first."""
    found: Verbs = {}
    for line in _joined(listed):
        head, _, phrases = line.strip().partition(":")
        relation, _, subject = head.partition(" ")
        for phrase in (tuple(p.split()) for p in phrases.split(",")):
            if phrase:
                found.setdefault(phrase[0], []).append((phrase, relation, subject))
    return {word: sorted(entries, key=lambda e: -len(e[0])) for word, entries in found.items()}


_ENGLISH = {
    "pronouns": "user: i me user\nproject: we us\nthird: he she they\nit: it this that there",
    "owners": "user: my\nproject: our\nthird: his her their\nit: its",
    "articles": "the a an some any this that these those both all every each",
    "of": "of",
    "near": "for at in on by with to",
    "to": "to onto into",
    "origin": "from off",
    "no": "not never no longer n't cannot without",
    "now": "now nowadays anymore any more again currently longer since today henceforth already meanwhile",
    "skip": "am 'm are is was were be been being have has had 've do does did will would 'll just also still really "
    "actually usually always only recently finally very much officially mostly mainly generally personally strongly "
    "definitely typically often normally primarily exclusively going then instead though all currently now",
    "stops": "because since so but and which who while when whenever until unless although though if after before "
    "where or whereas whom that's it's i it we he she they",
    "instead": "instead of, rather than, in place of, as opposed to, over, and not with, and not to, not with, not "
    "to, not as, not in, not on, not at, not, and not, in favour of, in favor of, but not, no longer",
    "leads": "btw, by the way, also, and, but, so, ok, okay, actually, fyi, just so you know, heads up, note that, "
    "note, "
    "please note, please note that, remember, remember that, please remember, please remember that, correction, "
    "update, "
    "oh, well, hey, hi, yes, no, quick update, for the record, turns out, turns out that, it turns out, "
    "it turns out that, i learned that, i learned, i found out that, i found out, as of today, as of now, "
    "starting today, from now on, going forward, in future, in the future, today, now, currently, sorry, "
    "just to let you know, for your information, small correction, good news, bad news, keep in mind that, "
    "keep in mind, for context, quick note, don't forget that, don't forget, you should know that, important, "
    "to be clear, the user said, the user said that, the user told me, the user told me that, the user mentioned that, "
    "i was wrong, i changed my mind, change of plan, change of plans, scratch that, finally, as you know, listen, "
    "after all, as discussed, meanwhile, in the end, please, i should mention, i should mention that, fun fact, thanks",
    "verbs": """
    name: is codenamed, is nicknamed, codenamed, nicknamed, name is, goes by the name, go by the name, goes by
      the name of, am called, is called, are called, goes
      by, go by, is named, am named
    callme go: call me, address me as
    employer: is with, are with, am with, work at, works at, work for, works for, working at, working for,
      employed at, employed by, joined, join, joins, started at, starting at, start at, starts at company,
      worked at, got hired by, got a job at, took a job at, have a job at, started working at, started working
      for, started a new job at, interning at, started a job at
    swap: traded, swapped, exchanged, traded in
    leftjob: left, leaving, quit, quitting, resigned from, stopped working at, stopped working for, laid off
      from, laid off by
    job: make a living as, makes a living as, got a job as, got a new job as, found a job as, have a job as,
      have a new job as, retrained as, work
      as, works as, working as, worked as, promoted to, a job as, got promoted to, was promoted to, started as
    home: settled in, based out of, live in, lives in, living in, live at, based in, reside in, resides in,
      living at, lives
      at, moved to
      live in, relocated to, relocating to, relocated from, moved in with, moving in with
    prefers: prefer, prefers, preferring, favour, favor
    likes: like, likes, love, loves, enjoy, enjoys, drink, drinks, eat, eats, drinking, eating, smoke, smokes,
      fond of, a fan of, a big fan of, am into, is into
    dislikes: stopped having, cut out, gone off, went off, fed up with, sick of, not fond of, quit smoking, quit
      drinking, dislike,
      dislikes, hate, hates, can not stand, cannot stand, avoid, avoids, stopped eating,
      stopped drinking, stopped smoking, gave up, given up, quit smoking, quit drinking
    allergic: allergic to
    uses: do my editing in, do my coding in, write code in, code with, install packages with, program in,
      develop in, editing in, gone with, use,
      uses, using, switched over to using, go with, going with, went with, settled on, adopted, opted
      for, stick with, sticking with, stay with, staying with, stay on, staying on, gets, chose, chosen, picked,
      decided on, standardised on, standardized on, rely on, relies on, code in, chat on, chats on, track issues
        in, powered by, go through, goes through
    stoppeduse: stopped using, stop using, dropped, ditched, got rid of, abandoned, deprecated, moved away from,
      moved off, migrated away from, migrated off, done with, retired, phased out
    port: listen on, listens on, listening on, listen on port, listens on port, runs on port, run on port,
      running on port, reachable on port, is on port, available on port, exposed on port, bound to port, on
      port, binds to, bound on, answers on, runs at port, run at port, uses port, use port, serves on port
    host: hosted on, hosted at, hosted by, deployed to, deployed on, deploy to, deploys to, deployed in
    platform: needs, requires, runs at, run at, targets, target, run on, runs on, running on, runs in, running
      in, run in, runs under, executed on
    lang: rewritten in, written in, coded in, built with, built in, implemented in, based on
    change: moved, moved to, moving to, set, put, cut, slid, slid to, reset, reset to, rolled, downgraded,
      downgrade, upgrade, got
      pushed, got moved, pin, pinned, changed, changing, changed to, changes to, switched, switched to,
      switching to, switching, switched over to, migrated, migrated to, migrating to, converted to, bumped,
      bumped to, upgraded, upgraded to, upgrading to, raised, raised to, lowered, lowered to, increased,
      increased to, decreased, decreased to, reduced, reduced to, postponed, postponed to, pushed, pushed to,
      pushed back to, rescheduled, rescheduled to, extended, extended to, updated, updated to, downgraded,
      downgraded to, transferred to, shifted to, went up to, went down to, rose to, grew to, shrank to, fell to,
      dropped to, got moved to, went from, gone from, goes to, gone back to, went back to, going back to, back
        to, back on,
      moved back to, moved back, reverted to, rolled back to, delayed to, brought forward to, moved up to,
      adjusted to, corrected to, relocated, turned into, cut to, swapped, delayed until, postponed until,
      extended until, moved over to, set back to, doubled to, halved to, shortened to, jumped to, climbed to,
      slipped to
    change project: set, pinned, bumped, upgraded, downgraded, moved, switched, changed, migrated, raised,
      lowered, increased, reduced, postponed, pushed, rolled, reverted, reset, swapped, back to, back on
    place: rewrote, hand in, run, host, deploy, build, put, write, keep, hosting, running, building, store
    meant: meant
    timeout: gives up after, give up after, times out after, time out after, timing out after
    limit: accepts, accept, allows, allow, supports up to, accepts up to, allows up to, capped at, limited to,
      maxes out at, tops out at
    charge: charge, charges
    manager: answer to, answers to, report to, reports to, reporting to
    set: set for, set to, set at, pinned to, configured to, fixed at, scheduled for, planned for, due on, due by, due,
      defaults to, default to
    rename: renamed, renamed to, rename, rebranded to, rebranded
    rename project: renamed, rebranded
    replaced: replaced, replaced by, replaced with, superseded by, replaces
    tookover: took over, takes over, taking over, has taken over, inherited
    handed: handed over, handed, passed
    became: became, become, becomes, has become, turned
    time: is happening on, happening on, happening at, ships on, comes out on, goes live on, starts at, start
      at, begins at, starts on, begins on, happens on, happen on, happens at, meets on,
      meets at, meet on, meet at, takes place on, takes place at, takes place, take place, ends at, ends on, is
      held on, held on, closes at, opens at, closes on, opens on, falls on
    price: sells for, sell for, goes for, costs, cost, priced at, is priced at
    owner: belongs to, belong to, owned by, handled by, managed by, maintained by, led by, reviewed by, assigned
      to, looked after by,
      run by, taken care of by, headed by
    owns: leading, heading, handling, managing, maintaining, owning, taking care of, looking after,
      owns, handles, manages, maintains, leads, is responsible for, responsible for, in charge of, looks
      after, heads, takes care of
    partner: married to, engaged to, dating, seeing, in a relationship with
    speaks: speak, speaks
    born: born on, born in
    drives: drive, drives, ride, rides
    plays: play, plays
    studies: study, studies, studying, major in, majoring in
    reads: reading
    pays: pay, pays
    has: have, has, own, have got, has got, got, owns a
    keeps: keeps, kept, stores, saves, save
    takes: take, takes
    goes: go to, goes to
    wears: wear, wears
    lies: stay at, stays at, sits in, sits at, lies in, located in, located at, lives under, stays on, stays in,
      stays at, stays with, remains, stays, sits on, resides on
    is: is, are, am, was, were, 's, 're, 'm, be, remains, will be, equals, means
    always go: always, please always
    never go: never, please never, don't ever, do not ever
    usego go: use, please use
    nouse go: don't use, do not use, stop using, avoid using, avoid
    may go: you may, you can, feel free to
    answer go: answer in, reply in, respond in, write in, speak, talk to me in, answer me in, respond to me in,
      reply to me in, write to me in
    keepgo go: keep
    """,
}
_GERMAN = {
    "pronouns": "user: ich mir mich\nproject: wir uns\nthird: er sie\nit: es das dies",
    "owners": "user: mein meine meinen meinem meiner meines\nproject: unser unsere unseren unserem unserer "
    "unseres\nthird: ihr ihre seine sein seinen seinem ihren ihrem",
    "articles": "der die das den dem des ein eine einen einem einer eines alle jede jeder jedes",
    "of": "von vom des der unseres unserer meines meiner",
    "near": "für im in am auf bei beim an zum zur mit",
    "to": "auf nach zu zum zur ins in an",
    "origin": "von vom aus",
    "no": "nicht nie niemals kein keine keinen keinem keiner keinerlei ohne",
    "now": "jetzt nun mehr inzwischen mittlerweile neuerdings wieder ab sofort künftig seit heute nunmehr doch bereits",
    "skip": "bin ist sind war waren habe hat haben hatte wird werden wurde wurden worden auch noch ja eben gerade "
    "schon "
    "wirklich eigentlich immer meistens nur jetzt nun seit sofort aktuell momentan derzeit gern gerne lieber am "
    "liebsten "
    "sehr total gar endgültig kürzlich endlich sich",
    "stops": "weil denn da aber und sondern wenn falls damit dass während bis solange obwohl sodass ich wir",
    "instead": "statt, anstatt, anstelle von, nicht, und nicht, nicht mehr, sondern nicht",
    "leads": "übrigens, also, ach, achtung, hinweis, korrektur, zur info, nur zur info, ab jetzt, ab sofort, von "
    "jetzt an, "
    "in zukunft, künftig, merk dir, merke dir, merk dir bitte, bitte merken, und, aber, ok, okay, ja, nein, update, "
    "kleine korrektur, wie gesagt, heute, jetzt, inzwischen, mittlerweile, seit heute, bitte, denk daran, "
    "planänderung, "
    "vergiss nicht, ich habe erfahren, ich habe gelernt, hallo, hey, sorry, nun, bitte beachte, stimmt nicht, kurze "
    "info",
    "verbs": """
    name: name ist, heiße, heißt, heißen, heisse, heisst, nenne mich, nennt sich
    callme go: nenn mich, nenne mich
    manager: berichte an
    owner: gehört, gehören
    employer: angestellter bei, angestellte bei, bin bei, ist bei, arbeite bei, arbeitet bei, arbeite für,
      arbeitet für, arbeiten bei, angestellt
      bei, angefangen bei, gewechselt zur firma, beschäftigt bei, jobbe bei
    leftjob: gekündigt bei, verlassen, aufgehört bei
    job: arbeite als, arbeitet als, angefangen als, befördert zur, befördert zum, tätig als
    home: wohne in, wohnt in, lebe in, lebt in, zog nach, zogen nach, gezogen nach, umgezogen nach, ziehe nach,
      zieht nach, wohne
      jetzt in, wohnen in, leben in, gezogen in
    prefers: bevorzuge, bevorzugt, ziehe vor, bevorzugen
    likes: mag, mögen, liebe, liebt, trinke, trinkt, esse, isst, rauche, raucht, finde toll
    dislikes: hasse, hasst, verabscheue, vermeide
    allergic: allergisch gegen, allergisch auf
    uses: programmiere in, programmiere mit, schreibe code in, schreibe meinen code in, benutze, benutzt,
      benutzen, nutze, nutzt, nutzen, setzen, verwende, verwendet, verwenden, setzen ein, setzen
      auf, setze auf, entschieden für, geeinigt auf, nehmen, bleiben bei, arbeite mit, arbeiten mit, arbeitet
      mit, läuft mit, festgelegt auf
    port: lauscht auf, hört auf, lauscht auf port, läuft auf port, erreichbar auf port, läuft unter port, hört
      auf port, lauschen auf port, liegt auf port
    host: gehostet bei, gehostet auf, deployt auf, läuft bei
    platform: läuft auf, laufen auf, läuft unter, laufen unter
    lang: geschrieben in, programmiert in, basiert auf
    change: gehoben, wechselte zu, wechselten zu, wechselte auf, wechselten auf, gelegt, umgelegt, gesetzt auf,
      angepasst auf, geändert zu, gewechselt, gewechselt zu, gewechselt
      auf, umgestellt, umgestellt auf, umgestiegen auf, umgestiegen,
      verschoben, verschoben auf, geändert, geändert auf, geändert in, erhöht, erhöht auf, gesenkt auf, gesenkt,
      migriert, migriert auf, migriert nach, aktualisiert auf, aktualisiert, verlegt, verlegt auf, verlegt nach,
      zurückgewechselt zu, zurückgewechselt, gestiegen auf, gesunken auf, verlängert, verlängert bis, verlängert auf,
      zurückgekehrt zu, hochgesetzt auf, umgezogen, gezogen, umgezogen auf, umgezogen zu, wechsle zu, wechseln
      zu, wechselt zu, steige um auf, wechselt auf, gezogen auf, gezogen zu, zieht auf, vorgezogen auf, verkürzt
      auf, zurück auf, zurück bei, zurück zu, angehoben auf, angehoben, reduziert auf, reduziert, ausgetauscht
    set: eingestellt auf, gesetzt auf, festgelegt auf, begrenzt auf, geplant für
    rename: umbenannt in, umbenannt, umbenannt zu
    replaced: ersetzt, ersetzt durch, abgelöst durch, abgelöst von
    keeps: speichert, speichern, sichert
    became: geworden
    time: endet erst am, beginnt erst am, kommt am, kommt erst am, erscheint am, steigt am, ist am, endet am,
      endet um, beginnt um, beginnt am,
      startet um, startet am, findet statt, findet, stattfindet,
      trifft sich,
      treffen uns, treffen
    price: kostet, kosten
    owner: betreut von, geleitet von, verantwortet von, übernommen von, gepflegt von
    owns: leitet, betreut, verantwortet, verantwortlich für, zuständig für, kümmert sich um, übernimmt, pflegt
    tookover: übernommen
    handed: übergeben, abgegeben, weitergegeben
    partner: verheiratet mit, verlobt mit, zusammen mit, liiert mit
    speaks: spreche, spricht
    born: geboren am, geboren in
    drives: fahre, fährt
    plays: spiele, spielt
    studies: studiere, studiert
    pays: zahle, zahlen, bezahle
    has: habe, hat, haben, besitze, besitzt
    lies: liegt in, liegt auf, liegt bei, liegen auf, liegen in, speichert in, speichert seine daten in, legt
      seine daten in, liegt im, liegen im, befindet sich in, bleibt bei, bleibt, steht in, liegt unter
    is: ist, sind, bin, lautet, war, bleibt, beträgt
    always go: immer, bitte immer
    never go: nie, niemals, bitte nie
    usego go: verwende, benutze, nutze, nimm, verwende bitte, benutze bitte, nutze bitte
    nouse go: verwende kein, verwende keine, benutze kein, benutze keine, nutze keine, nutze kein
    answer go: antworte auf, antworte mir auf, schreib auf, sprich, antworte bitte auf, antworte mir bitte auf,
      antworte immer auf, antworte mir immer auf
    """,
}
_FRENCH = {
    "pronouns": "user: je j' moi me m'\nproject: nous on\nthird: il elle ils elles\nit: ce c' cela ça",
    "owners": "user: mon ma mes\nproject: notre nos\nthird: son sa ses leur leurs",
    "articles": "le la les l' un une des du ce cette ces tous toutes",
    "of": "de d' du des",
    "near": "pour dans en sur à au aux chez",
    "to": "à au aux vers pour en sur par",
    "origin": "de du d'",
    "no": "ne n' pas plus jamais aucun aucune sans",
    "now": "maintenant désormais désormais plus dorénavant nouveau actuellement aujourd'hui",
    "skip": "bien beaucoup ai as a avons ont suis est sommes sont été était étaient très aussi vraiment toujours "
    "souvent surtout juste "
    "maintenant désormais récemment finalement enfin s' se y d'abord dorénavant actuellement",
    "stops": "parce car mais et donc puisque quand lorsque si qui que qu' pendant jusqu' afin",
    "instead": "au lieu de, plutôt que, à la place de, et non, pas, et pas, non pas, et non pas, au lieu d', et plus",
    "leads": "au fait, aussi, correction, pour info, pour information, à partir de maintenant, désormais, "
    "dorénavant, note que, "
    "note bien que, rappelle-toi que, souviens-toi que, et, mais, ok, oui, non, maintenant, finalement, sache que, "
    "en fait, "
    "à l'avenir, n'oublie pas que, pardon, bonjour, salut, s'il te plaît, stp, petite correction, j'ai appris que, "
    "à partir d'aujourd'hui, changement de plan, retiens que, mise à jour, depuis aujourd'hui",
    "verbs": """
    name: nom est, m' appelle, me appelle, s' appelle, se appelle, appelle, prénom est
    callme go: appelle-moi
    employer: employé par, employée par, salarié chez, retourné chez, retournée chez, est chez, suis chez,
      travaille chez, travaille pour, bosse chez, rejoint, employé chez, employée chez, commencé chez, embauché
      chez, embauchée chez, travaillons chez
    leftjob: quitté, démissionné de
    job: travaille comme, travaille en tant que, promu, promue, travaille en tant qu'
    home: réside à, réside, basé à, basée à, habite à, habite au, habite en, habite, vis à, vit à, vis en, vit
      en, déménagé à, déménagé au,
      déménagé en, emménagé à, installé à, installée à, vis au, habitons à
    prefers: préfère, préférons, préfèrent
    likes: prends du, prends de la, prends de, aime, adore, bois, boit, mange, apprécie, aimons, fume
    dislikes: déteste, arrêté de fumer, arrêté de boire, arrêté le, arrêté la, évite
    allergic: allergique à, allergique au, allergique aux
    uses: code sous, codons sous, code avec, codons avec, développe avec, développons avec, utilise, utilisons,
      utilisent, choisi, opté
      pour, adopté, emploie, employons, utilisé, restons sur,
      travaille avec, décidé d' utiliser, décidé de utiliser, retenu
    port: écoute sur, écoute sur le port, tourne sur le port, est sur le port, utilise le port
    host: hébergé chez, hébergé sur, hébergée chez, déployé sur, hébergée sur
    platform: tourne sur, tourne sous, fonctionne sur, fonctionne avec, fonctionne sous
    lang: écrit en, développé en, codé en, basé sur
    change: vient de passer à, viens de passer à, venons de passer à, passer à, changé, changé pour, passé,
      passée, passés, passées, revenu, revenus, migrés, passé à, passée à,
      passés à, passé sur, passe, passent, passe à, passe sur, passons à, migré vers, migré, déplacé, déplacé à,
      déplacée à, déplacé au, reporté, reporté à, reporté au, reportée à, reportée au, repoussé à, repoussé au,
      repoussée au, repoussée à, avancé à, avancé au, avancée au, augmenté à, porté à, mis à jour, revenu à,
      revenus à, revenue à, repassé à, repassés à, revenu sur, revenus sur, monté à, baissé à, descendu à,
      réduit à, basculé sur, basculé vers, décalé à, décalé au, décalée au, décalée à, prolongé jusqu' au,
      transféré à, repassé sur, repassés sur, retourné à, modifié, remplacé par
    set: fixé à, fixée à, fixé au, fixée au, réglé sur, limité à, prévu le, prévue le, prévu pour, prévue pour
    rename: renommé, renommée, renommé en, rebaptisé, renommée en, rebaptisée
    replaced: remplacé, remplacée, remplacée par
    became: devenu, devenue, devient, redevenu, redevenue
    tookover: repris, reprend
    handed: confié, transmis, cédé
    keeps: stocke, conserve, enregistre
    time: commence à, commence le, a lieu, a lieu le, aura lieu, aura lieu le, lieu le, lieu, débute à, débute le
    price: coûte, coûtent
    owner: appartient à, géré par, gérée par, maintenu par, maintenue par, dirigé par, dirigée par
    owns: gère, dirige, maintient, responsable de, responsable du, s' occupe de, s' occupe du, se occupe de, se
      occupe du
    partner: marié à, mariée à, marié avec, mariée avec, en couple avec, fiancé à, fiancée à
    speaks: parle
    born: né le, née le, né à, née à
    drives: conduis, conduit, roule en
    plays: joue
    studies: étudie
    has: ai, a, avons, possède, ont
    lies: se trouve à, se trouve dans, trouve à, reste à, reste sur, reste
    is: est, sont, suis, sommes, était, reste
    always go: toujours
    never go: jamais, ne jamais
    usego go: utilise, utilisez, emploie
    nouse go: n' utilise pas, n' utilise jamais, ne utilise pas, n' utilisez pas
    answer go: réponds en, réponds-moi en, répondez en, écris en, parle, réponds toujours en, réponds-moi toujours en
    """,
}
_SPANISH = {
    "pronouns": "user: yo me mí\nproject: nosotros nosotras nos\nthird: él ella ellos ellas\nit: esto eso",
    "owners": "user: mi mis\nproject: nuestro nuestra nuestros nuestras\nthird: su sus",
    "articles": "el la los las un una unos unas lo todos todas",
    "of": "de del",
    "near": "para en a al",
    "to": "a al para hacia por en",
    "origin": "de del desde",
    "no": "no nunca jamás tampoco sin ningún ninguna",
    "now": "ahora ya actualmente nuevo hoy desde",
    "skip": "mucho se le he ha hemos han es está son están fue fueron sido muy también siempre solo sólo realmente "
    "ahora ya "
    "recientemente finalmente casi actualmente todavía estoy estamos sigue",
    "stops": "porque pero y pues aunque cuando si mientras que quien donde sino",
    "instead": "en lugar de, en vez de, y no, no, en lugar del, en vez del, más que, antes que",
    "leads": "por cierto, también, corrección, para que lo sepas, a partir de ahora, desde ahora, de ahora en "
    "adelante, "
    "desde hoy, a partir de hoy, recuerda que, ten en cuenta que, y, pero, ok, vale, sí, no, ahora, hoy, "
    "actualización, "
    "en realidad, al final, finalmente, nota, perdón, en adelante, aprendí que, cambio de planes, hola, por favor, "
    "que sepas que, no olvides que, en el futuro, me equivoqué",
    "verbs": """
    name: nombre es, llamo, llama, llaman, se llama, me llamo
    callme go: llámame
    employer: empleado en, empleada en, es empleado de, es empleada de, empleado de, empleada de, trabaja en,
      trabaja para, empezó a
      trabajar en, empezó en, se unió a
    employer user: trabajo en, trabajo para, empecé a trabajar en, empecé en, entré en, he empezado en, he
      empezado a trabajar en
    leftjob: dejó, dejado
    leftjob user: dejé, renuncié a
    job: trabaja como, trabaja de, ascendió a, ascendido a
    job user: trabajo como, trabajo de, me ascendieron a
    home: se ha ido a vivir a, ido a vivir a, se fue a vivir a, reside en, vive en, se mudó a, mudó a, mudado a,
      vivir en
    home user: vivo en, me mudé a, mudé a, me he mudado a
    prefers: prefiere, prefieren
    prefers user: prefiero
    prefers project: preferimos
    likes: gusta, gustan, encanta, encantan, bebe, come
    likes user: me gusta, me gustan, me encanta, me encantan, bebo, como, tomo, amo, como carne, fumo
    dislikes: odia, molesta, dejado de beber, dejado de fumar, dejado de comer
    dislikes user: he dejado de beber, he dejado de fumar, he dejado de comer, he dejado de tomar, odio,
      detesto, dejé de beber, dejé de fumar, dejé de comer, dejé de tomar, evito
    allergic: alérgico a, alérgica a, alérgico al, alérgica al, alérgico a la, alérgica a la
    uses: usa, usan, utiliza, utilizan, usamos, utilizamos, decidido usar
    uses user: programo con, programo en, uso, utilizo, he elegido, elegí
    uses project: usamos, utilizamos, elegimos, hemos elegido, decidimos usar, hemos decidido usar, hemos optado
      por, optamos por, adoptamos, nos quedamos con
    stoppeduse: dejado de usar
    stoppeduse project: dejamos de usar, hemos dejado de usar
    stoppeduse user: dejé de usar, he dejado de usar
    port: escucha en, escucha en el puerto, corre en el puerto, está en el puerto, usa el puerto, funciona en el puerto
    host: alojado en, alojada en, desplegado en, desplegada en
    platform: corre en, corre sobre, funciona en, funciona con, se ejecuta en, ejecuta en
    lang: escrito en, escrita en, basado en
    change: actualizado, movido, pasó, pasa, pasado, vuelto, movió, cambió a, cambió, cambiado a, cambiado, pasó
      a, pasó al, pasa a, pasado a, pasado al, movió a, movió al, movido a, movido al, movió, aplazó a, aplazó
      al, aplazado al, aplazado a, aplazada al, retrasó al, retrasó a, adelantó al, adelantó a, subió a, bajó a,
      aumentó a, actualizado a, migrado a, migró a, trasladó a, trasladó al, pospuso al, pospuso a, pospuesto
      al, volvió a, vuelto a, movida al, movida a, cambiada a, retrasado al, retrasada al, reducido a, redujo a,
      amplió a, aumentado a
    change user: he cambiado, cambié a, cambié, pasé a, he cambiado a, volví a, he pasado a, he vuelto a, moví, subí
    became user: me he hecho, me hice, me he convertido en, me volví
    change project: hemos subido, hemos migrado, hemos pasado, hemos actualizado, hemos movido, migramos, cambiamos a,
      cambiamos, pasamos a, migramos a, hemos cambiado a, hemos pasado a, hemos migrado a, volvimos a, hemos
      vuelto a, movimos, hemos movido, hemos cambiado, actualizamos a, subimos, aplazamos
    set: fijado en, fijada en, configurado en, limitado a, programado para, programada para, previsto para,
      prevista para
    rename: renombrado a, renombrado, renombramos, se renombró a, renombramos a
    replaced: reemplazado por, sustituido por, reemplazó a, reemplazamos, sustituimos, sustituyó a
    became: convirtió en
    tookover: hecho cargo de, asumió, asume
    handed: le pasó, le ha pasado, traspasó, cedió
    keeps: guarda, almacena
    time: empieza a, empieza el, comienza a, comienza el, es a, es el, son a, será el, será a
    price: cuesta, cuestan
    owner: pertenece a, gestionado por, dirigido por, mantenido por, liderado por
    owns: gestiona, dirige, mantiene, lidera, responsable de, responsable del, encarga de, encarga del, se encarga de
    partner: casado con, casada con, prometida con, prometido con
    speaks: habla
    speaks user: hablo
    drives: conduce
    drives user: conduzco
    studies: estudia
    studies user: estudio
    has: tiene, tienen
    has user: tengo
    has project: tenemos
    lies: está en, queda en, sigue en, se queda en, están en
    is: es, son, está, están, será, sigue siendo
    is user: soy, estoy
    is project: estamos, somos
    always go: siempre
    never go: nunca
    usego go: usa, usa siempre, utiliza, usad
    nouse go: no uses, no utilices, nunca uses
    answer go: responde en, respóndeme en, contesta en, escribe en, habla en, responde siempre en, respóndeme siempre en
    """,
}
_ITALIAN = {
    "pronouns": "user: io mi\nproject: noi ci\nthird: lui lei loro\nit: questo quello",
    "owners": "user: mio mia miei mie\nproject: nostro nostra nostri nostre\nthird: suo sua suoi sue",
    "articles": "il lo la l' i gli le un uno una un'",
    "of": "di del della dello dell' dei delle d'",
    "near": "per in nel nella sul sulla a al",
    "to": "a al alla alle su per in",
    "origin": "da dal dalla",
    "no": "non mai nessun nessuna senza",
    "now": "ora adesso più ormai attualmente nuovo oggi",
    "skip": "ho ha abbiamo hanno è sono stato stata molto anche sempre solo davvero ora adesso recentemente si già sto",
    "stops": "perché ma e quindi poiché quando se mentre che chi dove però",
    "instead": "invece di, al posto di, e non, non, anziché, piuttosto che",
    "leads": "a proposito, anche, correzione, d'ora in poi, da ora in poi, ricorda che, nota che, e, ma, ok, sì, no, "
    "ora, adesso, in realtà, da oggi, per favore, ciao, per tua informazione",
    "verbs": """
    name: nome è, chiamo, chiama, mi chiamo, si chiama
    callme go: chiamami
    employer: lavora per, lavora in, lavora da, lavora presso
    employer user: lavoro per, lavoro in, lavoro da, lavoro presso, lavoro alla, ho iniziato a lavorare per
    job: lavora come
    job user: lavoro come
    home: vive a, abita a, trasferito a, trasferita a, vive in
    home user: vivo a, abito a, vivo in, mi sono trasferito a, mi sono trasferita a
    prefers: preferisce
    prefers user: preferisco
    prefers project: preferiamo
    likes: piace, piacciono, beve, mangia
    likes user: mi piace, mi piacciono, bevo, mangio, adoro, amo
    dislikes user: odio, detesto
    allergic: allergico a, allergica a, allergico al, allergica al, allergico alla, allergica alla, allergico
      alle, allergica alle
    uses: usa, utilizza, usano
    uses user: uso, utilizzo
    uses project: usiamo, utilizziamo, abbiamo scelto, abbiamo deciso di usare
    port: ascolta su, ascolta sulla porta, gira sulla porta, è sulla porta, usa la porta
    platform: gira su, funziona su
    host: ospitato su
    change: cambiato in, spostato a, spostata a, spostata al, spostato al, passato a, passata a, aggiornato a,
      migrato a, aumentato a, tornato a, spostata alle, spostato alle, rinviato a, rinviata a, rinviato al,
      rinviata al, salito a, sceso a
    change user: sono passato a, sono passata a, sono tornato a, sono tornata a, cambiato
    change project: siamo passati a, abbiamo spostato, abbiamo cambiato, siamo tornati a, siamo migrati a,
      abbiamo aggiornato
    set: fissato a, fissata a, previsto per, prevista per
    rename: rinominato in, rinominato, rinominata
    time: inizia alle, inizia il, comincia alle, è alle, è il
    price: costa, costano
    owner: gestito da, guidato da
    owns: gestisce, guida, responsabile di
    partner: sposato con, sposata con
    speaks user: parlo
    has: ha
    has user: ho
    has project: abbiamo
    is: è, sono, sarà
    is user: sono
    always go: sempre
    never go: mai
    usego go: usa, usa sempre, utilizza
    nouse go: non usare, non usare mai
    answer go: rispondi in, rispondimi in, scrivi in, rispondi sempre in
    """,
}
_PORTUGUESE = {
    "pronouns": "user: eu me\nproject: nós\nthird: ele ela eles elas\nit: isto isso",
    "owners": "user: meu minha meus minhas\nproject: nosso nossa nossos nossas\nthird: seu sua",
    "articles": "o a os as um uma",
    "of": "de do da dos das",
    "near": "para em no na",
    "to": "para a ao à em",
    "origin": "de do da",
    "no": "não nunca jamais nenhum nenhuma sem",
    "now": "agora já mais atualmente novo hoje",
    "skip": "é são está estão foi foram tem têm muito também sempre só realmente agora já recentemente estou estamos "
    "se",
    "stops": "porque mas e pois embora quando se enquanto que quem onde",
    "instead": "em vez de, ao invés de, e não, não, no lugar de",
    "leads": "a propósito, também, correção, a partir de agora, de agora em diante, lembre-se que, lembre que, e, "
    "mas, ok, sim, não, agora, na verdade, a partir de hoje, por favor, olá, para sua informação",
    "verbs": """
    name: nome é, chamo, chama, me chamo, se chama
    callme go: me chame de
    employer: trabalha na, trabalha no, trabalha para, trabalha em
    employer user: trabalho na, trabalho no, trabalho para, trabalho em, comecei a trabalhar na, comecei na
    job: trabalha como
    job user: trabalho como
    home: mora em, vive em, mora no, mora na
    home user: moro em, vivo em, me mudei para, moro no, moro na
    prefers: prefere
    prefers user: prefiro
    prefers project: preferimos
    likes: gosta de, bebe, come
    likes user: gosto de, adoro, bebo, tomo, amo
    dislikes user: odeio, detesto, parei de beber, parei de fumar, parei de comer
    allergic: alérgico a, alérgica a, alérgico ao, alérgica ao
    uses: usa, utiliza, usam
    uses user: uso, utilizo
    uses project: usamos, utilizamos, escolhemos, decidimos usar
    port: escuta na porta, roda na porta, está na porta, usa a porta, escuta em
    platform: roda em, roda no, funciona em, roda na
    host: hospedado em, hospedado na, hospedado no
    change: mudou para, mudou, passou para, adiado para, adiada para, movido para, atualizado para, migrado
      para, aumentou para, subiu para, voltou para, movida para, foi para, caiu para
    change user: mudei para, voltei para, voltei a usar, passei para, troquei
    change project: mudamos para, migramos para, passamos para, voltamos para, mudamos, adiamos, trocamos, atualizamos
    set: definido para, marcado para, marcada para, previsto para
    rename: renomeado para, renomeamos, renomeada para
    time: começa às, começa em, é às, é na, é no
    price: custa, custam
    owner: gerenciado por, liderado por
    owns: gerencia, lidera, responsável por
    partner: casado com, casada com
    speaks user: falo
    has: tem
    has user: tenho
    has project: temos
    is: é, são, está, fica, será
    is user: sou, estou
    always go: sempre
    never go: nunca
    usego go: use, use sempre
    nouse go: não use, nunca use
    answer go: responda em, escreva em, responda sempre em
    """,
}
_TABLES = {"en": _ENGLISH, "de": _GERMAN, "fr": _FRENCH, "es": _SPANISH, "it": _ITALIAN, "pt": _PORTUGUESE}
LANGUAGES = tuple(_TABLES)  # those written with spaces; Chinese is read by expressions


@cache
def grammar(language: str) -> Grammar:
    """Return the grammar of one of LANGUAGES."""
    table = _TABLES[language]
    pronouns, owners = _pairs(table["pronouns"]), _pairs(table["owners"])
    sets = {n: _set(table[n]) for n in ("articles", "of", "near", "to", "origin", "no", "now", "skip", "stops")}
    verbs = _verbs(table["verbs"])
    small = frozenset().union(*sets.values()) | pronouns.keys() | owners.keys()
    return Grammar(
        language,
        pronouns,
        owners,
        **sets,
        instead=_phrases(table["instead"]),
        leads=_by_first(_phrases(table["leads"])),
        verbs=verbs,
        known=small | {w for entries in verbs.values() for phrase, _, _ in entries for w in phrase},
    )


_TELLING = {  # words that only one of these languages has; the others only count together
    "en": _set("the i my our is are was not and of to with for we you it's i'm don't always never use please"),
    "de": _set("der die das ich mein meine unser unsere ist sind nicht und mit für wir auf bei bitte immer nie heiße"),
    "fr": _set(
        "le les je j' l' mon ma notre nos est sont ne n' pas et avec pour nous du toujours jamais utilise c' "
        "désormais chez préfère"
    ),
    "es": _set(
        "el los mi nuestro nuestra es son y con para usamos vivo trabajo en del prefiero siempre nunca ya está llamo "
        "una"
    ),
    "it": _set(
        "il gli mio mia nostro nostra è sono non e con per usiamo vivo lavoro della preferisco sempre mai nel chiamo di"
    ),
    "pt": _set(
        "o os meu minha nosso nossa é são não e com para moro trabalho em do da prefiro nunca uso você na no chamo"
    ),
}


@cache
def _marks() -> dict[str, list[tuple[str, int]]]:
    """Return word -> (language, how much it tells for it): four where only that language has it, else one."""
    found: dict[str, list[tuple[str, int]]] = {}
    for name, telling in _TELLING.items():
        known = grammar(name).known
        for word in known | telling:
            found.setdefault(word, []).append((name, 3 * (word in telling) + (word in known)))
    return found


def languages_of(words: list[str]) -> list[str]:
    """Return the languages that a text may be in, the likeliest first; English where none stands out.

    >>> languages_of(["wir", "nutzen", "redis"])[0], languages_of(["vivo", "en", "madrid"])[0]
    ('de', 'es')
    """
    scores = dict.fromkeys(LANGUAGES, 0)
    marks = _marks()
    for word in words:
        for name, score in marks.get(word, ()):
            scores[name] += score
    ranked = sorted(scores, key=lambda name: (-scores[name], LANGUAGES.index(name)))
    return [name for name in ranked[:3] if 2 * scores[name] >= scores[ranked[0]]]
