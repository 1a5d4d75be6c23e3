"""Lasting statements are known by their form where no claim can be read; what only passes has no such form."""

from __future__ import annotations

import doctest
import time

import pytest

from perdure.memories.grammar import forms
from perdure.memories.grammar.statements import stated

LASTING = """
fact | all our secrets live in vault/prod, can you read the db password from there
fact | The design docs are in docs/adr/
fact | our fixtures are under tests/golden/
fact | I'm new to Kubernetes, so go slowly
fact | I've never worked with Terraform before
fact | I have ten years of experience with Go
fact | I'm comfortable with Rust but not with C++
fact | We're currently running Debian 12 on all build machines
preference | I've been using Emacs for most of my writing
fact | the importer only supports CSV and Parquet
fact | ledgerd depends on NATS for its queue
fact | Our mobile app talks to the gateway over gRPC
fact | frobnicator has nothing to do with billing
fact | The mirror doesn't need a token
fact | I'm working on a booking portal for my brother's bakery
fact | caching the manifests cut the build from 9 minutes to 2 minutes
fact | switching to mimalloc improved throughput by 18 %
fact | I've measured the cold start, and it's around 340ms
fact | the code freeze starts on November 3
fact | Our beta ships to customers on June 12, so no big refactors
event | I've completed the OAuth login and the audit log.
event | we finalized the pricing table last sprint
event | I've enabled branch protection on main. please open the PR
event | I've set up a Hetzner box for the nightly jobs
decision | let's rename it to shipment_id
decision | lets call the new crate perch-core
decision | let's use Zod for input validation
decision | we'll go with Cloudflare R2 for the backups, can you wire it up?
decision | I've settled on Tailwind 4 for styling
decision | I want to use Argon2 for the API keys
decision | I want the changelog to live in CHANGES.md, not in the wiki
decision | We'll keep MySQL 8 until the migration is over
procedure | every endpoint needs an integration test
procedure | All timestamps must be UTC
procedure | commit messages should never mention ticket numbers
preference | make sure to run the migrations every time you touch a model
preference | don't ever force-push
preference | no emojis in commit messages!
preference | No default exports.
procedure | It is not allowed to import from the internal package
procedure | If a helper is used only once, it should be inlined
preference | only ever use the staging key on laptops
procedure | Alle Endpunkte müssen einen Test haben.
decision | Wir bleiben bei Postgres 16 für die Suche.
event | Ich habe das Backup auf Hetzner eingerichtet.
fact | Ich habe noch nie mit Kubernetes gearbeitet.
fact | Die Konfiguration liegt unter deploy/prod/
procedure | Tous les commits doivent être signés.
decision | On garde MySQL 8 pour la facturation.
event | J'ai terminé le module de paiement.
fact | Je n'ai jamais utilisé Terraform.
procedure | Todos los commits deben ir firmados.
decision | Nos quedamos con MySQL 8 para las facturas.
event | He terminado el módulo de pagos.
fact | Nunca he trabajado con Kubernetes.
procedure | 所有接口都必须有测试。
procedure | 禁止在代码里使用拼音。
fact | the prod db is read-only for us, everything goes through the replica
fact | Our CI only runs on ARM runners
fact | we don't support Windows
preference | never touch the vendor folder
preference | pls keep answers under 5 lines
fact | our API keys rotate every 30 days
fact | we deploy every Thursday at 4pm
fact | the frontend is in apps/web and the backend in apps/api
fact | we're a team of four
fact | I'm the only maintainer of this repo
fact | staging lives on fly.io
fact | we ship on the first Monday of each month
fact | I always work in a worktree
fact | the code owner for billing is Priya
preference | use British spelling everywhere
preference | stick to the standard library
preference | don't add comments to the code unless I ask
preference | dont use any emojis
preference | stop adding docstrings to tests
preference | commit after each step from now on
decision | let's stick with REST, GraphQL is overkill
decision | we decided against microservices
fact | after the refactor p95 went from 800ms to 210ms
fact | the release is planned for 2026-01-15
fact | my github handle is qwen-fan
fact | tests live next to the source files
fact | our main branch is called trunk
fact | my timezone is CET
preference | I use zsh with fish-like plugins
fact | the customer is a Dutch hospital
preference | prefer composition over inheritance
preference | avoid abbreviations in variable names
fact | each service owns its own schema
procedure | public functions must have docstrings
procedure | errors should be returned, not thrown
fact | we follow semver
fact | feature flags are managed in LaunchDarkly
fact | the monorepo uses Bazel
preference | I've switched to Linux last month
procedure | PRs need two approvals
preference | please don't commit for me
preference | ask before deleting anything
preference | I want all new code in TypeScript
fact | we no longer use Jenkins
fact | Der Build läuft nur unter Linux
fact | Wir deployen jeden Dienstag
preference | Bitte keine Kommentare im Code
fact | Nous déployons tous les jeudis
preference | No uses emojis en los commits
preference | 不要使用表情符号
fact | we're migrating off Heroku by the end of Q2, the new home is Render
fact | our design system is called Lumen and lives in packages/ui
fact | the cron job runs nightly at 03:00 UTC
fact | our SLA is 99.9%
fact | the budget for this is 20k
event | i already set up the dns for api.foo.dev, can you add the route?
fact | my boss is Ingrid and she reviews all the contracts
decision | lets keep the old endpoint under /v1 until June
preference | I'd rather have fewer dependencies
preference | no magic numbers please
preference | when in doubt ask me
preference | from now on write the tests first
fact | my daughter goes to school in Ghent
fact | we switched from Slack to Mattermost
fact | the new CTO is Wei Zhang
fact | Turns out the limit is 500 requests per minute
fact | bumping the pool to 20 cut the timeouts by 90%
fact | indexing now takes 3 seconds instead of 40
"""
PASSING = """
I've tried raising the memory limit
I've checked that the token is right but it still fails
I've got a function that parses dates
I've fixed it
I've finished the task
I set the port to 3000 but the server still crashes
I'm working on this function
I'm using your suggestion now
I'm using the wrong key
the error is in src/app/main.py
The bug lives in parser/lex.go
it uses too much memory
this is in docs/setup.md
let's look at the logs
let's use this one
lets get back to it
let's keep going
let's go with the second option
we'll see
I want to make sure the parser is right
I want to add a dark mode
I want you to use the Makefile for this test
I need to deploy on Friday
no problem!
no idea why
no, that's wrong!
No errors in the log.
no luck with the cache!
all tests should pass
all of these should be blue
If that works, we should merge it
If the tests pass, push it
make sure to run the tests
make sure the button is blue
it should be blue, not green
the button should be blue
this should reduce it from 5 to 3
I hope we can cut the build from 9 minutes to 2
The build takes too long
the docs are missing
The server needs to be restarted
the theme picker needs a border
Is the code freeze on November 3?
Could we use Zod for input validation, since I'm using React 19?
what if we'll use Redis for the queue
every time I click it, the page should reload but doesn't
Ich habe den Fehler behoben
Alle Tests müssen jetzt laufen
J'ai corrigé le bug
He arreglado el error
the linter supports it
i removed them all good
the spinner is still visible
the login page shows a blank screen
I deleted the branch
I pushed it
done, all merged
we use it in three places
looks good, commit and push
now add the same for the footer
can we drop the cache
the function returns None
it runs on my machine
I just ran the tests and two are red
let me know when it's done
the deploy took 12 minutes
all tests pass now
I see three warnings
the modal needs to be wider
the button needs an icon
every row shows the same value
each run gives a different result
all images need to be resized to 200px
any test should do
no tests ran
no more output after that
no files in the folder
No results in the table.
no styles on the page!
we have 3 failing tests in src/api/
I'm on it
I'm on branch fix/login
the output is in /tmp/out.log
the log is at /var/log/app.log and says disk full
the screenshot is at ~/Desktop/x.png
I've set the flag to true
I've deployed it to staging
I've installed the package
I have a question about the parser
I have two files open
let's use the first approach
let's start with the parser
let's call it a day
let's do the same on Friday
let's move on to step 3
we'll use that later
I'll use the debugger
the new field should never be null here
this should never happen
it must not be null
The request should not be cached in this case
he's never seen it
I never said that
if any test fails, fix it
if there are conflicts, resolve them
when a user clicks the button, the dialog should close
I want the button to be blue, not green
I want the header to stay at the top, not scroll
reduce the padding from 12 to 8
it went from 3 errors to 12
my change is in src/foo.ts
I added a file called notes.md
my friend Bob says hi
I've been debugging this for two hours
I've been at it for three days
run it again with the verbose flag
the tests in src/api fail with a timeout
use the existing helper for all of these
I renamed the variable
now it works
the diff is huge
can you put it in src/lib/dates.ts
it should go in utils.py
add a note that the server runs on port 8080
rename the class to UserStore
make all buttons rounded
we have to update the lockfile
we need to fix the header every time it breaks
I always get this warning
the file uses tabs
the button uses the wrong color
your solution uses too many queries
the screen goes black every few seconds
the app crashes every time I open it
I have a merge conflict on main
we've got a 404 from api/users
I set it up
we released it
i've put it in the folder called old
stop using emojis in this file
don't add files to this commit
don't use any colors for now
avoid changes in this module
keep it short
keep going
use it everywhere
I'm working on a fix for the header
we're working on the login page with Sam
I'm using it for the demo
let's use it
let's keep it as is
we'll use 3 for now
the docs say it supports JSON
each item has a delete button
all rows have the same id
any idea how to do that
every test fails with the same error
no matches for that query!
no logs at all!
no more questions!
my goal is to understand the parser
I'm a bit lost
we're a few commits behind
I tested it with 3 files
the query took 40ms
it took from 3 to 5 seconds
I've never understood why it does that
you said you would never do that
"""


def test_the_examples_in_docstrings_are_true() -> None:
    assert doctest.testmod(forms).failed == 0


@pytest.mark.parametrize("row", LASTING.strip().split("\n"))
def test_lasting_statement_is_found_once_with_its_kind(row: str) -> None:
    kind, text = row.split(" | ", 1)
    found = stated(text)
    assert [(s.kind, s.start) for s in found] == [(kind, 0)]


@pytest.mark.parametrize("text", PASSING.strip().split("\n"))
def test_passing_remarks_are_left_alone(text: str) -> None:
    assert stated(text) == []


@pytest.mark.parametrize(
    ("message", "found"),
    [
        (
            "I'm trying to write the importer, and I've decided on Parquet for the dumps",
            ["I've decided on Parquet for the dumps"],
        ),
        (
            "I want to be sure it scales, so can you look? I'm using Redis 7 and Go 1.22.",
            ["I'm using Redis 7 and Go 1.22."],
        ),
        ("Can you help me with the login, considering I'm using Django 5 and I prefer Postgres?", []),
        ("How do I speed it up, given I'm using Django 5, and I have a deadline of May 3", []),
        ("Can you look at the crawler, I'm using Scrapy 2.11 on Debian 12", ["I'm using Scrapy 2.11 on Debian 12"]),
        ("I noticed that the second phase ends on May 3, so we need a plan", ["the second phase ends on May 3"]),
        ('She wrote "it is a mess, and we decided to use Kafka for all of it"', []),
        (
            'I get "no route to host today again", we keep the hosts in ops/hosts.yml',
            ["we keep the hosts in ops/hosts.yml"],
        ),
        ("I've checked the token, and I've enabled the proxy on port 81", []),
        ("If I enable the flag, my app uses Redis 7", []),
        ("no tabs in YAML!\n\n```sh\n# one\nls\n# two\nls\n# three\nls\n```", ["no tabs in YAML!"]),
    ],
)
def test_the_parts_of_a_sentence_are_judged_each_for_itself(message: str, found: list[str]) -> None:
    assert [s.text for s in stated(message)] == found


@pytest.mark.parametrize(
    "piece",
    [
        "every a ",
        "no a-",
        "the a ",
        "I've never ",
        "we use a.b ",
        "let's rename to ",
        "if any a ",
        "cut from 1 to ",
        "my friend A",
        "all ",
    ],
)
def test_hostile_text_takes_linear_time(piece: str) -> None:
    """A typed message of one piece over and over, in sentences as long as are looked at: at most 1 second."""
    line = (piece * (1_100 // len(piece))) + "\n"
    started = time.process_time()
    stated(line * (19_000 // len(line)))
    assert time.process_time() - started < 1
