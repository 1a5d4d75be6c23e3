"""The words that claims are compared by: canonical nouns across languages, categories of values, normalising. Pure.

A noun that names an attribute has one canonical English form, whatever the language, number or spelling; a word
that is not listed stands for itself. The lists are data: adding a word changes what a claim's path is called.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from functools import cache, lru_cache

from perdure.regex import lazy_re

_ATTRIBUTES = """
port: ports port-number portnummer puerto porta puertos 端口 端口号
version: versions versión versión versao versão versione 版本
deadline: deadlines due-date frist abgabetermin stichtag abgabe date-limite fecha-límite fecha-de-entrega
  échéance échéances plazo scadenza prazo data-limite 截止日期 截止时间 期限
password: passwords passwort kennwort contraseña mot-de-passe senha 密码 passphrase
username: user-name benutzername login nom-d'utilisateur 用户名
name: names codename code-name codenamen nombre-en-clave nom-de-code 代号 nombre nom nome 名字 姓名
surname: last-name nachname apellido cognome sobrenome
nickname: spitzname apodo surnom soprannome apelido 昵称
employer: arbeitgeber empleador employeur company firma 公司 datore-di-lavoro empregador
job: métier role position beruf stelle rolle trabajo puesto-de-trabajo emploi poste métier profession occupation
  title job-title lavoro emprego profesión 职业 工作 职位 cargo puesto
email: e-mail mail email-address mail-address mailadresse correo courriel 邮箱
phone: phone-number telephone telefon telefonnummer handynummer teléfono téléphone telefone telefono mobile cell
  number-phone 电话 手机号
address: adresse dirección indirizzo endereço anschrift 地址 住址
birthday: geburtstag cumpleaños anniversaire compleanno aniversário 生日 birth-date
age: alter edad âge età idade 年龄
home: hometown home-town town wohnort city residence 城市
editor: editors text-editor texteditor éditeur 编辑器 ide
shell: shells
browser: browsers navegador navigateur 浏览器
os: operating-system betriebssystem sistema-operativo système-d'exploitation 操作系统
terminal: terminals terminal-emulator 终端
database: db databases datenbank datenbanken base-de-datos base-de-données banco-de-dados 数据库 datastore
cache: caches zwischenspeicher caché 缓存
queue: message-queue broker message-broker warteschlange 消息队列
framework: frameworks web-framework 框架
code-language: programming-language programmiersprache lenguaje-de-programación langage 编程语言 linguaggio
language: sprache idioma langue lingua 语言
package-manager: paketmanager gestor-de-paquetes gestionnaire-de-paquets 包管理器
test-framework: test-runner testframework
formatter: code-formatter
linter: linters
ci: ci-system pipeline-tool build-server
cloud: cloud-provider hosting-provider hoster
indentation: indent einrückung indentación 缩进
theme: colour-scheme color-scheme thème tema 主题
font: schriftart fuente police
timezone: time-zone zeitzone zona-horaria fuseau-horaire fuso-horário 时区
url: urls link endpoint-url adresse-web web-address 网址
host: hostname 主机
domain: domäne dominio domaine domínio 域名
ip: ip-address ip-adresse
region: regions región région 区域
branch: branches zweig rama branche 分支
budget: budgets presupuesto bilancio orçamento 预算
price: cost costs preis precio prix prezzo preço fee fees coste costo coût 价格
salary: gehalt lohn sueldo salario salaire stipendio salário pay wage 工资
rent: miete alquiler loyer affitto aluguel 房租 租金
timeout: time-out zeitlimit tiempo-de-espera délai-d'attente 超时 超时时间
limit: limits grenze límite limite 限制
interval: intervall intervalo intervalle 间隔
size: größe tamaño taille dimensione tamanho 大小
capacity: kapazität capacidad capacité
threshold: schwelle schwellenwert umbral seuil 阈值
retention: aufbewahrung
frequency: häufigkeit frecuencia fréquence
owner: encargado encargada verantwortliche zuständige ownership leadership leitung persona-responsable
  personne-responsable ansprechpartner ansprechpartnerin
  zuständiger eigentümer dueño
  propriétaire propietario proprietario maintainer maintainers verantwortlicher responsable 负责人 besitzer
lead: tech-lead team-lead teamleiter teamleiterin líder leader 组长
manager: boss chef vorgesetzter vorgesetzte jefe jefa chefin supervisor 经理 老板 capo gerente
partner: spouse pareja partnerin
wife: ehefrau esposa femme moglie 妻子 老婆
husband: ehemann esposo marido mari marito 丈夫 老公
girlfriend: freundin novia petite-amie fidanzata namorada 女朋友
boyfriend: novio petit-ami fidanzato namorado 男朋友
dentist: zahnarzt zahnärztin dentista dentiste 牙医
doctor: arzt ärztin hausarzt hausärztin médico médecin medico 医生
landlord: vermieter casero propriétaire-du-logement 房东
diet: ernährung dieta régime 饮食
colour: color couleur farbe colore cor 颜色 colours colors
time: date schedule termin uhrzeit hora horario heure horaire ora orario datum fecha 时间 日期 zeitpunkt datte day
location: place venue room ort raum lugar lieu sala salle luogo stanza 地点 会议室 office büro oficina bureau
state: status zustand estado état stato 状态
format: formato 格式
model: modell modelo modèle modello 模型
provider: anbieter proveedor fournisseur fornitore fornecedor 供应商 supplier lieferant
model-number: serial-number
count: number anzahl número nombre-de numero 数量
car: auto coche voiture macchina carro 车 wagen
gym: fitnessstudio gimnasio
school: schule escuela école scuola escola 学校
university: universität universidad université uni 大学
bank: banco banque banca 银行
hobby: hobbys pasatiempo passe-temps 爱好
pet: haustier mascota
licence: license lizenz licencia
replicas: instances replica
memory: ram arbeitsspeicher memoria mémoire 内存
strategy: merge-strategy
style: stil estilo
"""

_CATEGORIES = """
editor: vim neovim nvim emacs helix vscode vs-code visual-studio-code sublime sublime-text zed nano intellij
  pycharm webstorm goland cursor windsurf jetbrains notepad++ xcode kakoune doom-emacs spacemacs
shell: bash zsh fish nushell powershell
browser: firefox chrome safari brave vivaldi edge chromium opera librewolf
os: ubuntu debian fedora arch arch-linux nixos macos windows linux opensuse alpine pop-os mint manjaro
terminal: kitty alacritty iterm iterm2 wezterm ghostty
database: postgres postgresql mysql mariadb sqlite mongodb mongo cockroachdb dynamodb cassandra oracle couchdb
  clickhouse duckdb supabase firestore
cache: redis memcached valkey dragonfly
queue: rabbitmq kafka nats sqs pulsar
code-language: python rust golang go typescript javascript java kotlin swift ruby elixir haskell scala c++ c#
  php clojure
package-manager: npm pnpm yarn bun deno pip poetry uv pipenv conda
test-framework: pytest unittest jest vitest mocha nose playwright cypress
formatter: prettier black biome
linter: eslint ruff pylint flake8
ci: jenkins github-actions gitlab-ci circleci buildkite travis drone forgejo-actions teamcity
cloud: aws gcp azure hetzner digitalocean fly.io heroku vercel netlify render cloudflare
framework: react vue svelte angular django flask fastapi rails express nextjs next.js remix astro sveltekit
  solid solidjs qwik preact nuxt lit ember gatsby laravel spring nestjs htmx flutter react-native
chat-tool: slack discord mattermost teams zulip
forge: github gitlab gitea codeberg bitbucket forgejo
tracker: jira linear asana trello
indentation: tabs spaces tab space leerzeichen espacios espaces tabuladores
theme: dark-mode light-mode dark-theme light-theme dunkelmodus dunkler-modus heller-modus modo-oscuro modo-claro
  mode-sombre mode-clair 深色模式 浅色模式 dark light
units: metric imperial celsius fahrenheit kilometers miles kilometres metrisch kilometer meilen kilómetros millas
quotes: single-quotes double-quotes
language: english german french spanish italian portuguese chinese japanese dutch polish russian korean deutsch
  englisch französisch spanisch italienisch inglés español alemán francés anglais allemand français espagnol
  inglese tedesco francese spagnolo inglês alemão 英文 中文 英语 德语 法语 日语
diet: vegetarian vegan pescatarian vegetarisch vegetarier vegetarierin veganer veganerin végétarien végétarienne
  végane végétalien vegetariano vegetariana vegano vegana 素食 素食者
case-style: snake_case camelcase kebab-case pascalcase
merge-strategy: rebase squash merge-commits
answer-length: short-answers concise-answers brief-answers detailed-answers long-answers kurze-antworten
  ausführliche-antworten respuestas-cortas respuestas-largas réponses-courtes réponses-longues
"""

_SAME_VALUE = """
english: englisch inglés anglais inglese inglês 英文 英语
german: deutsch alemán allemand tedesco alemão 德语
french: französisch français francés francese 法语
spanish: spanisch español espagnol spagnolo
chinese: 中文
tabs: tab tabuladores
spaces: space leerzeichen espacios espaces
dark-mode: dark-theme dunkelmodus dunkler-modus modo-oscuro mode-sombre dark 深色模式
light-mode: light-theme heller-modus modo-claro mode-clair light 浅色模式
postgres: postgresql
vscode: vs-code visual-studio-code
neovim: nvim
go: golang
mongodb: mongo
vegan: veganer veganerin végane végétalien vegano vegana
vegetarian: vegetarisch vegetarier vegetarierin végétarien végétarienne vegetariano vegetariana 素食 素食者
coffee: kaffee café caffè 咖啡
tea: tee thé té tè chá 茶
meat: fleisch viande carne 肉
fish: fisch poisson pescado pesce peixe 鱼
alcohol: alkohol alcool álcool 酒 酒精
milk: milch lait leche latte leite 牛奶
monday: montag lundi lunes lunedì segunda-feira 星期一 周一 mon
tuesday: dienstag mardi martes martedì terça-feira 星期二 周二 tue
wednesday: mittwoch mercredi miércoles mercoledì quarta-feira 星期三 周三 wed
thursday: donnerstag jeudi jueves giovedì quinta-feira 星期四 周四 thu
friday: freitag vendredi viernes venerdì sexta-feira 星期五 周五 fri
saturday: samstag samedi sábado sabato 星期六 周六 sat
sunday: sonntag dimanche domingo domenica 星期日 星期天 周日 sun
blue: blau bleu azul blu 蓝色
green: grün vert verde 绿色
red: rot rouge rojo rosso vermelho 红色
black: schwarz noir negro nero preto 黑色
"""

_NOUNS = """
server: servers servidor serveur servidores serveurs serveur 服务器
service: services dienst servicio serviço servizio 服务
staging: test-stage 预发 预发布
production: prod produktion producción produktiv produktions producão produção produzione 生产
meeting: meetings besprechung reunión réunion riunione reunião 会议 会
standup: stand-up daily 站会
release: veröffentlichung lanzamiento 发布 releases
team: équipe equipo equipe squadra mannschaft 团队
project: projekt proyecto projet progetto projeto 项目 projects
customer: kunde kunden cliente client 客户
backup: backups sicherung sicherungen copia-de-seguridad sauvegarde sauvegardes 备份
invoice: rechnung factura facture fattura fatura 发票
dog: hund perro chien cane cachorro 狗
cat: katze gato chat gatto 猫
sister: schwester hermana sœur sorella irmã 妹妹 姐姐
brother: bruder hermano frère fratello irmão 弟弟 哥哥
mother: mutter madre mère mãe mom mum mama 妈妈
father: vater padre père pai dad papa 爸爸
daughter: tochter hija fille figlia filha 女儿
son: sohn hijo fils figlio filho 儿子
favourite: favorite lieblings preferido favorito préféré préférée preferita favori favorita preferida
web: webs
main: haupt principal
user: benutzer usuario utilisateur
"""

_NUMBERS = """
0: zero null cero zéro 零
1: one eins 一
2: two zwei deux dos due dois 二 两
3: three drei trois tres tre três 三
4: four vier quatre cuatro quattro quatro 四
5: five fünf cinq cinco cinque 五
6: six sechs seis sei 六
7: seven sieben sept siete sette sete 七
8: eight acht huit ocho otto oito 八
9: nine neun neuf nueve nove 九
10: ten zehn dix diez dieci dez 十
12: twelve zwölf douze doce dodici
15: fifteen fünfzehn quinze quince
20: twenty zwanzig vingt veinte venti vinte 二十
30: thirty dreißig trente treinta trenta trinta 三十
"""

ARTICLES = frozenset(
    "the a an der die das den dem des ein eine einen einem einer le la les un une du des el los las una unos unas il "
    "lo "
    "gli i o os as um uma my our your mein meine meinen meinem meiner unser unsere unseren unserem unserer mon ma mes "
    "notre nos mi mis nuestro nuestra nuestros mio mia nostro nostra meu minha nosso nossa its their his her".split()
)
GENERIC = frozenset("server service system team project current instance machine box app application tool host".split())
PROFESSIONS = frozenset(
    "nurse teacher doctor lawyer engineer developer designer manager student writer photographer architect accountant "
    "chef pilot consultant analyst scientist researcher professor therapist dentist plumber electrician director cto "
    "ceo cfo founder freelancer programmer administrator sysadmin intern lead producer editor journalist translator "
    "comptable judge principal coach clerk cashier waiter waitress cook butcher tailor banker broker secretary "
    "receptionist "
    "carpenter driver farmer musician actor artist baker librarian paramedic vet pharmacist surgeon barista "
    "lehrer lehrerin arzt ärztin ingenieur ingenieurin entwickler entwicklerin krankenschwester anwalt anwältin "
    "professeur ingénieur ingénieure développeur développeuse infirmière avocat avocate médecin enseignant enseignante "
    "profesor profesora ingeniero ingeniera desarrollador desarrolladora enfermera abogado abogada médico médica "
    "insegnante ingegnere sviluppatore professor engenheiro engenheira desenvolvedor desenvolvedora "
    "techniker student studentin étudiant étudiante estudiante rentner rentnerin berater beraterin".split()
)
_PERIOD = (
    "monday tuesday wednesday thursday friday saturday sunday january february march april may june july august "
    "september october november december jan feb mar apr jun jul aug sep sept oct nov dec tomorrow noon midnight "
    "morning afternoon evening weekend mondays tuesdays wednesdays thursdays fridays saturdays sundays "
    "montags dienstags mittwochs donnerstags freitags januar februar märz mai juni juli oktober dezember mittag "
    "janvier février mars avril juin juillet août septembre octobre novembre décembre midi enero febrero marzo abril "
    "mayo junio julio agosto septiembre octubre noviembre diciembre gennaio febbraio aprile maggio giugno luglio "
    "settembre ottobre dicembre janeiro fevereiro março maio junho julho setembro outubro dezembro uhr o'clock"
)
_UNITS = (
    "second seconds minute minutes hour hours day days week weeks month months year years ms s sec min gb mb kb tb "
    "percent % sekunden minuten stunden tage tagen wochen monate monaten jahre secondes minutes heures jours semaines "
    "mois ans segundos minutos horas días semanas meses años secondi ore giorni settimane mesi anni dias semanas "
    "sekunde stunde tag woche monat jahr km miles pages users requests people copies nodes cores workers replicas"
)
_CURRENCY = frozenset("euro euros eur usd dollars dollar pounds chf francs euros yuan 元 €".split())
_VERSION = lazy_re(r"v?\d+(?:\.(?:\d+|x))+(?:[-.]?\w+)?|v\d+|\d+lts")
_CLOCK = lazy_re(
    r"\d{1,2}[:h]\d\d(?:am|pm|h)?|\d{1,2}(?:am|pm|h)|\d{4}-\d\d-\d\d|\d{1,2}/\d{1,2}(?:/\d{2,4})?"
    r"|\d{1,2}\.\d{1,2}\.\d{2,4}|\d+(?:st|nd|rd|th)"
)
_WEB = lazy_re(
    r"https?://|www\.|[\w-]+(?:\.[\w-]+)*\.(?:com|org|net|io|dev|local|internal|de|fr|es|it|cn|app|ai|co|example)\b"
)


@cache
def _listed(table: str) -> dict[str, str]:
    """Return word -> canonical word of one of the tables above; the canonical word is in it too."""
    found: dict[str, str] = {}
    canonical = ""
    for line in table.split("\n"):
        head, colon, others = line.rpartition(":")
        canonical = head if colon else canonical  # a line without a colon goes on with the one before it
        for word in (canonical, *others.split()):
            if word:
                found.setdefault(_plain(word), canonical)
    return found


@cache
def _set(words: str) -> frozenset[str]:
    return frozenset(_plain(w) for w in words.split())


@lru_cache(maxsize=8192)
def _plain(word: str) -> str:
    """Return a word in lower case without diacritics and possessive ending.

    >>> _plain("Müller’s"), _plain("Frühstück")
    ('muller', 'fruhstuck')
    """
    word = word.lower().replace("’", "'")
    if word.endswith(("'s", "s'")):
        word = word[:-2] if word.endswith("'s") else word[:-1]
    if word.isascii():
        return word
    return "".join(c for c in unicodedata.normalize("NFKD", word.replace("ß", "ss")) if not unicodedata.combining(c))


def attribute_of(words: Sequence[str]) -> str:
    """Return the canonical attribute that these words name together, empty when none.

    >>> attribute_of(["Mot", "de", "passe"]), attribute_of(["Datenbank"]), attribute_of(["cheese"])
    ('password', 'database', '')
    """
    return _listed(_ATTRIBUTES).get("-".join(map(_plain, words)), "")


@lru_cache(maxsize=8192)
def noun(word: str) -> str:
    """Return the canonical form of a noun: translated where listed, else plain and in the singular.

    >>> noun("Servidores"), noun("backups"), noun("Mara's"), noun("status")
    ('server', 'backup', 'mara', 'state')
    """
    plain = _plain(word)
    known = _listed(_NOUNS).get(plain) or _listed(_ATTRIBUTES).get(plain) or _listed(_SAME_VALUE).get(plain)
    return known or _singular(plain)


def _singular(word: str) -> str:
    """Return an English word without its plural ending, where it is safe to say that it has one."""
    if len(word) > 4 and word.endswith("ies"):
        return word[:-3] + "y"
    if len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is", "as", "os")):
        return word[:-2] if word.endswith(("ches", "shes", "xes", "sses")) else word[:-1]
    return word


@lru_cache(maxsize=8192)
def compound(word: str) -> tuple[str, ...]:
    """Return the parts of a hyphenated word or a German compound that ends in a known noun.

    >>> compound("Staging-Server"), compound("Stromanbieter"), compound("Mara")
    (('staging', 'server'), ('strom', 'provider'), ('mara',))
    """
    parts = [p for p in word.replace("_", "-").split("-") if p]
    return tuple(piece for part in parts for piece in _german(part)) or (noun(word),)


def _german(word: str) -> tuple[str, ...]:
    plain = _plain(word)
    if len(plain) < 8 or not word.isalpha() or plain in _listed(_NOUNS) or plain in _listed(_ATTRIBUTES):
        return (noun(word),)
    for tail in _GERMAN_TAILS:
        if plain.endswith(tail) and len(plain) - len(tail) >= 3:
            head = (
                plain[: -len(tail)].removesuffix("s") if not plain[: -len(tail)].endswith("ss") else plain[: -len(tail)]
            )
            return (noun(head), noun(tail))
    return (noun(word),)


_GERMAN_TAILS = (
    "server datenbank passwort kennwort anbieter termin farbe sprache adresse nummer dienst besprechung editor"
).split()


def category(value: Sequence[str]) -> str:
    """Return what kind of thing the first known name of a value is, empty when none of its first words is known.

    >>> category(["Visual", "Studio", "Code"]), category(["dark", "mode"]), category(["cheese"])
    ('editor', 'theme', '')
    """
    table = _listed(_CATEGORIES)
    plain = [_plain(w) for w in value[:4]]
    for i in range(min(2, len(plain))):
        for n in (3, 2, 1):
            name = "-".join(plain[i : i + n])
            found = table.get(name)
            if found and (name not in _PLAIN_WORDS or len(value) == 1):
                return found
    return ""


_PLAIN_WORDS = frozenset(  # that name a tool only when they stand alone
    "tab tabs space spaces dark light go edge arch black nano bun astro render poetry swift rust ruby scala oracle zed "
    "remix solid lit spring ember fish mint linear teams safari opera brave yarn nose alpine express cursor metric "
    "rails".split()
)


def is_shared(attribute: str) -> bool:
    """Return whether a project, rather than a person, chooses what this attribute is."""
    return attribute in _SHARED


_SHARED = frozenset(
    "database cache queue package-manager test-framework formatter linter ci cloud framework tracker forge indentation "
    "quotes case-style merge-strategy".split()
)
SEVERAL = frozenset("queue cache code-language language".split())  # several are used side by side


def is_profession(word: str) -> bool:
    """Return whether a word is a profession that is listed."""
    return _plain(word) in PROFESSIONS


def is_category(attribute: str) -> bool:
    """Return whether values of this attribute are known by name."""
    return attribute in _listed(_CATEGORIES).values()


def canonical(value: Iterable[str]) -> tuple[str, ...]:
    """Return the words of a value as they are compared: no articles, numbers as digits, names in one spelling.

    >>> canonical(["the", "three", "Servers"]), canonical(["VS", "Code"]), canonical(["Freitag"])
    (('3', 'server'), ('vscode',), ('friday',))
    """
    plain = [_plain(w) for w in value if w.lower() not in ARTICLES or w in ("o", "i")]
    joined = _listed(_SAME_VALUE).get("-".join(plain))
    if joined:
        return (joined,)
    numbers = _listed(_NUMBERS)
    return tuple(numbers.get(w) or noun(w) for w in plain)


def typed(value: Sequence[str]) -> str:
    """Return what sort of value these words are: version, url, money, time, quantity, number, switch; else empty.

    >>> [typed(v.split()) for v in ("Python 3.13", "Friday at 3pm", "35 days", "$40", "cheese", "8080")]
    ['version', 'time', 'quantity', 'money', '', 'number']
    """
    plain = [_plain(w) for w in value if w.lower() not in ARTICLES][:5]
    numbers = _listed(_NUMBERS)
    days = _listed(_SAME_VALUE)
    if any(_WEB.match(w) for w in plain):
        return "url"
    if any(w in _set(_PERIOD) or days.get(w, "").endswith("day") or _CLOCK.fullmatch(w) for w in plain):
        return "time"
    if any(_VERSION.fullmatch(w) for w in plain):
        return "version"
    has_number = any(w[:1].isdigit() or w in numbers for w in plain)
    if any(w[:1] in "$€£¥" or w[-1:] in "$€£¥" or w in _set(" ".join(_CURRENCY)) for w in plain):
        return "money"
    if has_number and any(w in _set(_UNITS) or w.lstrip("0123456789.,") in _set(_UNITS) for w in plain):
        return "quantity"
    if plain and (plain[0][:1].isdigit() or plain[0] in numbers):
        return "number"
    return "switch" if plain and plain[0] in ("on", "off", "enabled", "disabled", "an", "aus") else ""


def slug(words: Iterable[str], *, n_words: int = 6) -> str:
    """Return words as one part of a path: letters and digits of any script, set apart by hyphens.

    >>> slug(["Fly.io", "C++", "端口"])
    'fly.io-c++-端口'
    """
    kept = ("".join(c for c in w.lower() if c.isalnum() or c in "-_.+#").strip("-.") for w in words)
    return "-".join([w for w in kept if w][:n_words])[:60].strip("-.")
