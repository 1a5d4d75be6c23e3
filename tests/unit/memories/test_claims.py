"""A newer statement of the same thing meets the older one, in whatever language; of another thing it never does."""

from __future__ import annotations

import doctest
from importlib import import_module

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.archive.memory_events import check_path
from perdure.memories.grammar.claims import MAX_CHARS, claim, path_for, same_subject, says_same

MODULES = ("chinese", "claims", "clauses", "division", "grammar", "relations", "values", "words")
REPLACES = """
My editor is vim. | I switched from vim to Helix.
I use vim. | I use Helix now.
I work at Acme. | I started a new job at Initech last week.
I work at Acme as a designer | I no longer work at Acme
My name is Bob Smith. | My name is now Bob Jones.
Our staging server runs on port 8080. | The staging server's port is 9090 now, not 8080.
The deadline is Friday. | The deadline moved to Monday.
The project deadline is March 3. | We pushed the deadline to March 10.
I live in Berlin. | I moved to Munich in May.
I drink coffee every morning. | I no longer drink coffee.
We use Postgres for orders. | We migrated the orders from Postgres to MySQL.
We use Postgres. | We've switched to MySQL.
We switched from Postgres to MySQL. | We moved back to Postgres.
The API runs on Python 3.11. | We upgraded the API to Python 3.13.
Mara told me her port is 8080. | Mara's port is 9090 now.
My dentist is Doctor Weller in Mill Lane. | My new dentist is Dr. Achterberg.
The billing service is called Ledger. | We renamed the billing service to Tally.
I'm a vegetarian. | I'm vegan now.
Bob is the tech lead. | Alice took over as tech lead from Bob.
Bob owns the payments module. | Alice now owns the payments module.
The standup is at 9:30. | The standup moved to 10:00.
I prefer tabs. | I prefer spaces over tabs.
Always use npm. | Use pnpm instead of npm from now on.
Always answer in English. | From now on answer in German.
We decided to go with React. | Let's go with Svelte instead of React.
The rent is 900 euros. | The rent went up to 1015 euros.
The API key rotates every 30 days | The API key rotates every 60 days.
My sister lives in Rome. | My sister moved to Paris.
My phone number is 555-1234. | My new phone number is 555-9876.
The default branch is master. | We renamed the default branch from master to main.
Our minimum Android version is 9. | We raised the minimum Android version to 11.
The timeout is 30 seconds. | We lowered the timeout to 12 seconds.
My favourite color is blue. | My favourite colour is green now.
I drive a Golf. | I sold the Golf, I drive a Tesla now.
Deploys go through Jenkins. | Deploys are done by Buildkite.
Ich arbeite bei Siemens. | Ich habe bei Bosch angefangen.
Ich wohne in Berlin. | Ich bin nach Hamburg gezogen.
Unser Staging-Server läuft auf Port 8080. | Der Port des Staging-Servers ist jetzt 9090.
Der Abgabetermin ist Freitag. | Der Abgabetermin wurde auf Montag verschoben.
Ich trinke Kaffee. | Ich trinke keinen Kaffee mehr.
Mein Editor ist vim. | Ich bin von vim zu Helix gewechselt.
Wir nutzen Postgres. | Wir sind von Postgres auf MySQL umgestiegen.
Je travaille chez Renault. | Je travaille maintenant chez Airbus.
J'habite à Lyon. | J'ai déménagé à Paris.
Le port du serveur de staging est 8080. | Le serveur de staging écoute désormais sur le port 9090.
La date limite est vendredi. | La date limite a été repoussée à lundi.
Je bois du café. | Je ne bois plus de café.
Mon éditeur est vim. | Je suis passé de vim à Helix.
Nous utilisons Jenkins. | Nous sommes passés de Jenkins à GitLab CI.
Trabajo en Telefónica. | Ahora trabajo en Repsol.
Vivo en Madrid. | Me mudé a Valencia.
El puerto del servidor de staging es 8080. | El servidor de staging ahora escucha en el puerto 9090.
La fecha límite es el viernes. | La fecha límite pasó al lunes.
Bebo café. | Ya no bebo café.
Mi editor es vim. | Cambié de vim a Helix.
Usamos Postgres. | Hemos migrado de Postgres a MySQL.
测试服务器的端口是8080。 | 测试服务器的端口改成9090了。
我住在北京。 | 我搬到上海了。
我在腾讯工作。 | 我现在在阿里工作。
我喝咖啡。 | 我不喝咖啡了。
我们用Jenkins。 | 我们从Jenkins换成了GitLab CI。
截止日期是周五。 | 截止日期推迟到周一了。
Lavoro per Fiat. | Ora lavoro per Ferrari.
La scadenza è venerdì. | La scadenza è stata spostata a lunedì.
Moro em Lisboa. | Me mudei para o Porto.
O prazo é sexta-feira. | O prazo mudou para segunda-feira.
Mein Arbeitgeber ist Siemens. | I work at Bosch now.
The staging server listens on port 8417. | Der Port des Staging-Servers ist jetzt 9090.
The auth service is reachable at port 4000 | heads up: auth service has moved to 4100
auth-api binds to 7000 | auth-api is now bound to port 7100
our prod box answers on port 443 | prod box answers on 8443 as of today
Postgres version: 14 | we're now running Postgres 16
We're on Node 18 | Node got bumped to 20
The app targets Python 3.10 | switched the app over to Python 3.12
Terraform stays at 1.5 | we have moved Terraform up to 1.7
I'm employed at Siemens | As of March I work for Bosch
I work as a barista | I got a new job as a paramedic
I'm a teacher at a primary school | I retrained, I'm a nurse these days
Paul is with Accenture | Paul left Accenture for Deloitte
Nina is a lawyer | Nina became a judge
My home town is Leeds | I've relocated to York
Tom lives in Oslo | Tom has moved to Bergen
Anna's based out of Lisbon | Anna is now based in Porto
My parents live in Graz | My parents moved to Vienna last summer
My wife's name is Clara | I remarried, my wife is called Nora
My last name is Miller | I got married, my last name is now Schmidt
The project is called Falcon | The project has been renamed Osprey
The repo's name is data-tools | We renamed the repo data-tools to pipeline
I code in VS Code | I've moved over to Zed for coding
My go-to editor is Sublime Text | these days I use Neovim
I prefer light mode | I've switched to dark mode
I use bash as my shell | I'm on fish now instead of bash
Firefox is my browser | I ditched Firefox for Brave
I usually drink tea | I don't drink tea any longer
I eat meat | I've stopped eating meat
I love running | I don't enjoy running anymore
I hate cilantro | I actually like cilantro now
We deploy with Jenkins | Deployments now go through GitHub Actions
Our CI is CircleCI | We replaced CircleCI with GitLab CI
We track issues in Jira | We moved issue tracking from Jira to Linear
We host on AWS | We migrated our hosting from AWS to Hetzner
The team chats on Slack | The team switched from Slack to Discord
Logs go to Datadog | Logs go to Loki now
The wiki is at wiki.example.com | The wiki moved to docs.example.com
The checkout service is written in Java | The checkout service was rewritten in Go
The upload limit is 10 MB | Upload limit has been raised to 25 MB
The session timeout is 15 minutes | Session timeout went down to 10 minutes
Rate limit for the public API is 100 requests a minute | We bumped the public API rate limit to 200 requests a minute
The Pro plan is $20 a month | The Pro plan now costs $25
Tickets cost 12 euros | Tickets are 15 euros now
Rent is 900 a month | My landlord raised the rent to 950
My salary is 60k | I got a raise, my salary is 65k now
The launch is on May 3 | The launch slipped to May 17
The demo is scheduled for Monday | The demo has been pushed to Wednesday
Standup is at 9 | Standup starts at 9:30 now
Release day is Thursday | Release day is now Tuesday
The exam is on June 2 | My exam was postponed until June 9
The flight leaves at 8:15 | The flight leaves at 9:40 instead
Priya leads the data team | Omar leads the data team now
Kim is in charge of billing | billing is handled by Lee now
My boss is Karen | I have a new boss, Devon
My manager is Raj | Raj left, my manager is Mei now
Jo is the owner of the search module | ownership of the search module moved to Ana
Our designer is Lea | Our new designer is Max
My doctor is Dr. Weiss | I changed doctors, my doctor is Dr. Klein now
My phone number is 555 1234 | New phone number: 555 9876
The wifi password is kiwi-7 | The wifi password was changed to mango-9
The meeting room is Berlin | The meeting room is Paris now
Our database is MySQL | The database was switched to Postgres
The cache TTL is 60 seconds | We set the cache TTL to 300 seconds
The default branch is master | The default branch is main now
The main language of the project is Ruby | The main language of the project is Elixir now
The plan is to ship on Friday | The plan is to ship on Monday
I drive a Golf | I traded the Golf for a Tesla
I have two cats | I have three cats now
My daughter goes to Lincoln School | My daughter changed to Roosevelt School
My favorite band is Muse | My favorite band is Radiohead these days
The server room is on the second floor | The server room moved to the basement
I go to the gym on Mondays | I go to the gym on Wednesdays now
The office is in Mitte | Our office moved to Kreuzberg
Please call me Al | Please call me Alex from now on
Answer in French please | Please reply in English from now on
Always use double quotes | Use single quotes instead of double quotes
Never use semicolons in JS | You can use semicolons in JS again
Mein Chef ist Herr Braun | Mein neuer Chef ist Frau Keller
Ich arbeite als Lehrerin | Ich bin jetzt Schulleiterin
Der Server hört auf Port 5000 | Der Server hört jetzt auf Port 5100
Wir verwenden Java 17 | Wir sind auf Java 21 umgestiegen
Paul arbeitet bei BMW | Paul ist zu Audi gewechselt
Anna wohnt in Köln | Anna ist nach Bonn gezogen
Das Meeting ist am Montag | Das Meeting wurde auf Mittwoch verlegt
Ich esse Fleisch | Ich esse kein Fleisch mehr
Ich nutze Firefox | Statt Firefox nutze ich jetzt Brave
Unser CI läuft mit Jenkins | Unser CI läuft jetzt mit GitLab CI
Die Miete beträgt 800 Euro | Die Miete ist auf 850 Euro gestiegen
Julia leitet das Team | Sven hat die Leitung des Teams übernommen
Wir haben uns für React entschieden | Wir haben uns doch für Svelte entschieden
Mon chef est Paul | Mon nouveau chef est Marc
Je suis professeur | Je suis maintenant directeur
Marie vit à Nantes | Marie s'est installée à Rennes
Le serveur tourne sur le port 5000 | Le serveur tourne maintenant sur le port 5100
Nous utilisons Java 17 | Nous sommes passés à Java 21
La réunion est lundi | La réunion a été déplacée à mercredi
Le projet s'appelle Aigle | Le projet a été renommé Faucon
Je mange de la viande | Je ne mange plus de viande
Le loyer est de 800 euros | Le loyer est passé à 850 euros
J'utilise Firefox | J'utilise Brave à la place de Firefox
Julie dirige l'équipe | C'est maintenant Marc qui dirige l'équipe
On a choisi React | Finalement on a choisi Svelte
Mi jefe es Pablo | Mi nuevo jefe es Marcos
Soy profesora | Ahora soy directora
María vive en Sevilla | María se ha mudado a Granada
El servidor corre en el puerto 5000 | El servidor corre ahora en el puerto 5100
Usamos Java 17 | Hemos pasado a Java 21
La reunión es el lunes | La reunión se movió al miércoles
El proyecto se llama Águila | El proyecto ahora se llama Halcón
El alquiler es de 800 euros | El alquiler subió a 850 euros
Uso Firefox | Ahora uso Brave en vez de Firefox
Julia lidera el equipo | Ahora Marcos lidera el equipo
我的老板是王强 | 我的新老板是李明
我是老师 | 我现在是校长
服务器运行在5000端口 | 服务器现在运行在5100端口
我们用Java 17 | 我们升级到Java 21了
会议在星期一 | 会议改到星期三了
项目叫雄鹰 | 项目改名叫猎鹰了
我吃肉 | 我不再吃肉了
我用Firefox | 我改用Brave了
房租是800元 | 房租涨到850元了
小李负责搜索模块 | 搜索模块现在由小张负责
妹妹住在杭州 | 妹妹搬到苏州了
Il mio capo è Paolo | Il mio nuovo capo è Marco
Maria vive a Torino | Maria si è trasferita a Genova
Usiamo Java 17 | Siamo passati a Java 21
O meu chefe é o Paulo | O meu novo chefe é o Marcos
Maria mora em Recife | Maria mudou para Salvador
Usamos Java 17 em produção | Migramos para Java 21
kibana is exposed on 5601 | we've changed kibana's port to 5610
mailhog runs at port 1025 | mailhog no longer runs on 1025, it's 1030 now
the worker's on port 9000 | that was wrong, the worker is on 9001
we still use PHP 8.1 | PHP is now 8.3
the project needs Go 1.21 | we moved the project to Go 1.22
my job title is product manager | my job title is now head of product
I make a living as a translator | I'm now working as an editor
Ben's employer is Bosch | Ben's employer is Siemens now
Zoe got hired by Stripe | Zoe has started at Adyen
I'm living in Dublin | I've moved from Dublin to Cork
our office is located in Lyon | our office is now located in Nice
the code name for the redesign is Atlas | the redesign is codenamed Titan now
our bot is named Jarvis | we've renamed our bot Friday
I go by Sam | I go by Alex now
my editor of choice is Emacs | I gave up Emacs and use Helix now
I write code in PyCharm | I'm using Cursor for coding now
we install packages with npm | we install packages with pnpm now
our package manager is yarn | we've gone from yarn to bun
tests run with jest | tests run with vitest now
the billing db is MySQL | the billing db is now Postgres
the orders service keeps its data in Mongo | the orders service now keeps its data in DynamoDB
max upload size for the portal is 20 MB | we increased the portal's max upload size to 50 MB
requests to the api time out after 30s | requests to the api now time out after 60s
Basic costs 5 euros a month | we lowered Basic to 4 euros a month
the audit is happening on 4 May | the audit was rescheduled to 11 May
the kickoff takes place on 2 March | the kickoff will take place on 9 March
the beta ships on 1 June | the beta ships on 15 June instead
the report is due 3 April | the due date of the report is 10 April now
Lena maintains the parser | the parser is maintained by Tim now
Omar looks after onboarding | Omar passed onboarding to Rita
I answer to Paula | I answer to Hugo now
my supervisor is Ian | my supervisor changed, it's Eve now
I love espresso | I've gone off espresso
I take sugar in my tea | I no longer take sugar in my tea
I enjoy beer | I've quit beer
we're building the dashboard in React | we're now building the dashboard in Vue
we picked Svelte for the landing page | we'll use Astro for the landing page instead
the mobile app is a Flutter app | the mobile app is now React Native
ich heiße Weber | ich heiße jetzt Schneider
ich bin Köchin von Beruf | ich bin inzwischen Grafikerin
unser Editor-Standard ist vim | unser Editor-Standard ist jetzt Helix
der Dienst billing liegt auf Port 4000 | wir haben billing auf Port 4100 gelegt
wir setzen Python 3.10 ein | wir setzen jetzt Python 3.12 ein
Jonas wohnt in Mainz | Jonas ist zurück nach Trier gezogen
Mara ist bei Bosch | Mara arbeitet mittlerweile bei Zeiss
das Release kommt am 3. Mai | das Release kommt erst am 10. Mai
ich trinke gern Bier | ich trinke kein Bier mehr
ich mag Oliven | ich mag keine Oliven mehr
der Termin ist am 4. Mai | der Termin ist nicht am 4. Mai, sondern am 5. Mai
meine Chefin ist Frau Abel | meine neue Chefin ist Frau Roth
je suis infirmière | je suis devenue médecin
mon patron est Luc | mon patron est désormais Yves
Paul habite Lille | Paul habite Metz maintenant
billing est sur le port 4000 | billing est maintenant sur le port 4100
on est en Python 3.10 | on est passés en Python 3.12
la démo est prévue le 3 mai | la démo est repoussée au 10 mai
Léa gère le parser | c'est Tom qui gère le parser maintenant
j'adore la bière | je n'aime plus la bière
on code avec vim | on code avec Helix maintenant
Anne bosse chez Orange | Anne a quitté Orange pour Free
soy enfermera | me he hecho médica
mi jefa es Ana | mi jefa ahora es Eva
Pablo vive en León | Pablo se ha ido a vivir a Burgos
billing está en el puerto 4000 | billing ahora está en el puerto 4100
estamos en Python 3.10 | hemos subido a Python 3.12
la demo es el 3 de mayo | la demo se ha movido al 10 de mayo
me encanta la cerveza | ya no me gusta la cerveza
mi editor es vim | he cambiado vim por Helix
Rosa trabaja para Iberia | Rosa ha dejado Iberia y trabaja en Vueling
我是护士 | 我现在当医生了
我老板是老王 | 我老板换成老李了
小明住北京 | 小明搬家到上海了
billing 在 4000 端口 | billing 现在在 4100 端口
我们用 Python 3.10 | 我们已经升到 Python 3.12 了
演示定在5月3日 | 演示推迟到5月10日了
小丽维护解析器 | 解析器现在归小刚管
我喜欢啤酒 | 我不喜欢啤酒了
我的编辑器是 vim | 我不用 vim 了,现在用 Helix
小红在华为上班 | 小红从华为跳槽去了小米
checkout ist unter Port 5000 erreichbar | checkout ist jetzt unter Port 5100 erreichbar
checkout nutzt Port 5000 | checkout nutzt nun Port 5100
unser Projekt läuft mit Python 3.10 | unser Projekt läuft mittlerweile mit Python 3.12
ich bin von Beruf Lehrerin | ich habe den Beruf gewechselt und bin jetzt Architektin
Jonas ist Angestellter bei Orbis | Jonas hat den Arbeitgeber gewechselt, er ist jetzt bei Tandem
Jonas ist bei Orbis beschäftigt | Jonas wechselte zu Tandem
ich schreibe Code in Vim | ich schreibe meinen Code inzwischen in Helix
am liebsten nutze ich Vim als Editor | als Editor nutze ich jetzt Helix
die Datenbank von billing ist MySQL | die Datenbank von billing ist nun Postgres
billing hat MySQL als Datenbank | billing hat jetzt Postgres als Datenbank
der Sprint endet am 4. Mai | der Sprint endet erst am 11. Mai
die Abgabe ist für den 4. Mai geplant | die Abgabe ist jetzt für den 11. Mai geplant
Tim ist der Verantwortliche für search | der neue Verantwortliche für search ist Lea
search gehört Tim | search gehört jetzt Lea
um search kümmert sich Tim | um search kümmert sich jetzt Lea
ich trinke gerne Espresso | Espresso trinke ich nicht mehr
checkout tourne sur le port 5000 | checkout est passé sur le port 5100
checkout utilise le port 5000 | checkout utilise désormais le port 5100
on est sur Python 3.10 | on vient de passer à Python 3.12
le projet utilise Node 18 | le projet utilise maintenant Node 20
je suis comptable de profession | je suis désormais avocate
Paul bosse chez Orbis | Paul a changé de boîte, il est chez Tandem
Paul est salarié chez Orbis | Paul a été embauché chez Tandem
Léa réside à Lyon | Léa réside maintenant à Metz
Léa est basée à Lyon | Léa est désormais basée à Metz
mon éditeur préféré est Vim | mon éditeur préféré est maintenant Helix
je code sous Vim | je code maintenant sous Helix
la base de billing est MySQL | la base de billing est maintenant Postgres
billing tourne sur MySQL | billing tourne désormais sur Postgres
le lancement est fixé au 4 mai | le lancement a été décalé au 11 mai
la date limite de l'audit est le 4 mai | l'audit a été avancé au 2 mai
Tom gère search | Tom a passé search à Léa
le responsable de search est Tom | le nouveau responsable de search est Léa
je bois du coca | j'ai arrêté de boire du coca
je prends du thé le matin | je ne prends plus de thé
checkout usa el puerto 5000 | checkout usa ahora el puerto 5100
checkout corre en el puerto 5000 | checkout pasó al puerto 5100
el proyecto usa Python 3.10 | el proyecto usa ya Python 3.12
mi trabajo es de enfermera | mi trabajo ahora es de traductora
soy ingeniera de software | me hice profesora
Leo está empleado en Orbis | Leo se cambió a Tandem
Leo trabaja para Orbis | Leo ya no trabaja en Orbis, está en Tandem
Ana reside en León | Ana ahora reside en Burgos
Ana está en León | Ana se trasladó a Burgos
mi editor favorito es Vim | mi editor favorito ahora es Helix
programo con Vim | ahora programo con Helix
la base de datos de billing es MySQL | la base de datos de billing ahora es Postgres
billing funciona con MySQL | billing funciona ahora con Postgres
el lanzamiento está previsto para el 4 de mayo | el lanzamiento se pospuso al 11 de mayo
la entrega es el 4 de mayo | la entrega pasa al 11 de mayo
el responsable de search es Leo | el nuevo responsable de search es Ana
me gusta el té | ya no me gusta el té
checkout 用的是 5000 端口 | checkout 改用 5100 端口
checkout 跑在 5000 端口 | checkout 现在跑在 5100 端口
我们的 Python 版本是 3.10 | 我们的 Python 版本升到 3.12 了
项目用 Node 18.2 | 项目已经换成 Node 20.1
我的职业是老师 | 我转行做律师了
我当护士 | 我现在是老师
王强在华为上班 | 王强换到小米工作了
王强就职于华为 | 王强加入了小米
李娜家在杭州 | 李娜搬去苏州了
李娜住杭州 | 李娜现在住苏州
我写代码用 Vim | 我写代码改用 Helix 了
我习惯用 Vim | 我现在习惯用 Helix
搜索模块的负责人是小王 | 搜索模块的负责人换成小李了
搜索模块归小王管 | 搜索模块现在归小李管
我爱喝可乐 | 我戒可乐了
我常喝绿茶 | 我已经不喝绿茶了
"""
STANDS_BESIDE = """
I take sugar in my tea. | I don't drink tea any longer.
Paul lives in Lille. | Paul left Accenture for Deloitte.
The staging server listens on port 8080. | The production server listens on port 9090.
The staging db runs on MySQL. | The staging server runs on Postgres.
Mara works at Acme. | Mona works at Initech.
Mara's port is 8080. | Mona's port is 9090.
I drink coffee. | I no longer drink tea.
I like hiking. | I like chess.
I like hiking. | I also like chess.
We use Kafka. | We also use RabbitMQ.
We use Postgres for orders. | We use MySQL for reports.
My sister lives in Rome. | My brother lives in Paris.
My sister lives in Rome. | I moved to Paris.
I work at Acme. | Mara started at Initech.
The deadline for the audit is Friday. | The deadline for the demo is Monday.
The request timeout of the gateway is 30 seconds. | The nightly export job has a timeout of 45 minutes.
The metrics exporter listens on port 9102. | Staging moved to port 8642.
Backups are kept for 14 days. | Log files are kept for 7 days.
My favourite colour is blue. | My favourite food is ramen.
I'm allergic to nuts. | I'm allergic to pollen.
My phone number is 555-1234. | Mara's phone number is 555-9876.
My editor is vim. | My browser is Firefox.
Ich wohne in Berlin. | Mara wohnt in Hamburg.
Ich mag Tee. | Ich mag keinen Kaffee.
Je travaille chez Renault. | Mara travaille chez Airbus.
Vivo en Madrid. | Mara vive en Sevilla.
测试服务器的端口是8080。 | 生产服务器的端口是9090。
我喝咖啡。 | 我不喝茶了。
"""
PATHS = """
Our staging server runs on port 8080. | staging-server/port
The port of the staging server is 8080. | staging-server/port
The staging server's port is 9090 now. | staging-server/port
Der Port unseres Staging-Servers ist 8080. | staging-server/port
Le port du serveur de staging est 8080. | staging-server/port
My editor is Helix. | user/preferences/editor
I prefer dark mode. | user/preferences/theme
Answer in German. | user/preferences/language
I work at Acme. | user/employer
Trabajo en Acme. | user/employer
我在腾讯工作。 | user/employer
My name is Ada. | user/name
Call me Ada. | user/name
I live in Leeds. | user/home
I drink coffee. | user/likes/coffee
I no longer drink coffee. | user/likes/coffee
Ich trinke keinen Kaffee mehr. | user/likes/coffee
Ya no bebo café. | user/likes/coffee
我不喝咖啡了。 | user/likes/coffee
Mara is a nurse. | mara/job
I learned that Mara works at Initech. | mara/employer
Mara told me her port is 8080. | mara/port
The user prefers dark mode. | user/preferences/theme
The deadline moved to Friday. | project/deadline
"""
NO_CLAIM = """
What port does staging use?
Is my name Ada?
If I moved to Leeds, it would be quieter.
It is on port 80.
This is fine.
Thanks!
The invoices endpoint may be called.
"""


def _pairs(table: str) -> list[list[str]]:
    return [line.split(" | ") for line in table.strip().split("\n")]


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_in_docstrings_are_true(name: str) -> None:
    assert doctest.testmod(import_module(f"perdure.memories.grammar.{name}")).failed == 0


@pytest.mark.parametrize(("before", "after"), _pairs(REPLACES))
def test_newer_statement_supersedes_the_older(before: str, after: str) -> None:
    old, new = claim(before), claim(after)
    assert old and new and same_subject(new, old), (old, new)


@pytest.mark.parametrize(("one", "other"), _pairs(STANDS_BESIDE))
def test_statements_on_other_subjects_get_other_paths(one: str, other: str) -> None:
    a, b = claim(one), claim(other)
    assert not (a and b) or not (same_subject(a, b) or same_subject(b, a)), (a, b)
    assert path_for(one, "fact") != path_for(other, "fact")


@pytest.mark.parametrize(("text", "path"), _pairs(PATHS))
def test_path_names_the_subject_and_attribute(text: str, path: str) -> None:
    read = claim(text)
    assert read and read.path == path == path_for(text, "fact")


@pytest.mark.parametrize("text", NO_CLAIM.strip().split("\n"))
def test_undecidable_statement_has_no_claim(text: str) -> None:
    assert claim(text) is None


def test_claim_holds_value_old_value_and_negation() -> None:
    read = claim("The port of the staging server is 9090, not 8080.")
    assert read and (read.value, read.old_value, read.negated, read.single) == ("9090", "8080", False, True)
    gone = claim("I no longer drink coffee.")
    assert gone and (gone.value, gone.negated, gone.single) == ("coffee", True, False)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("My editor is Helix.", "I use Helix as my editor.", True),
        ("I work at Acme.", "Ich arbeite bei Acme.", True),
        ("The port is 8080.", "The port is 8081.", False),
        ("I drink coffee.", "I don't drink coffee.", False),
        ("Mara lives in Rome.", "Mona lives in Rome.", False),
        ("What a day!", "what a day", True),
        ("Deploy on Mondays", "Deploy on Fridays", False),
    ],
)
def test_restatement_is_told_from_a_change(one: str, other: str, same: bool) -> None:
    assert says_same(one, other) is same is says_same(other, one)


def test_path_without_a_claim_is_unique_and_stable() -> None:
    one = path_for("Quite a day, all in all!", "event")
    assert one == path_for("quite  a day, all in all!", "event") != path_for("Quite a night, all in all!", "event")
    assert one.startswith("stated/event/quite-a-day-")


@given(st.text(max_size=MAX_CHARS + 50))
@settings(deadline=None)
def test_any_text_has_a_path_that_may_be_one(text: str) -> None:
    assert check_path(path_for(text, "fact"))
    assert says_same(text, text) or claim(text) is None


WORDS = st.sampled_from([w for line in (REPLACES + STANDS_BESIDE).split("\n") for w in line.split()] or ["x"])


def test_a_claim_without_a_value_is_none() -> None:
    """Found by the test below: the date was read as the value, and then taken off it."""
    assert claim("Mai 10:00. My") is None


@given(st.lists(WORDS, max_size=25).map(" ".join), st.lists(WORDS, max_size=25).map(" ".join))
@settings(deadline=None)
def test_shuffled_words_break_nothing(one: str, other: str) -> None:
    a, b = claim(one), claim(other)
    assert check_path(path_for(one, "fact")) and isinstance(says_same(one, other), bool)
    assert a is None or b is None or isinstance(same_subject(a, b), bool)
    assert a is None or (a.entity and a.attribute and a.value)
