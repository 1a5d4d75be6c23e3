"""Real clients and SDKs through the proxy: told in one, known in the other, with only a base URL changed."""

from __future__ import annotations

import itertools
import json
import subprocess
from functools import partial

import pytest

import perdure
from perdure.types import Filters
from rig.clients import Missing, kept_prefix, main_requests, program
from rig.tap import assert_only_blocks_added, tap

TOOL = {
    "claude-code": '@call Bash {"command": "echo from-a-tool"}',
    "codex": '@call exec_command {"cmd": "echo from-a-tool"}',
    "opencode": '@call bash {"command": "echo from-a-tool", "description": "d"}',
}
ENDINGS = ("/messages", "/chat/completions", "/responses")
AGAIN = {"claude-code": ("-c",), "opencode": ("-c",)}
TOLD = "From now on the staging server of tidepool listens on port 9417."
ASKED = "Which port does the staging server of tidepool listen on?"


def use_anthropic(base: str, text: str) -> str:
    anthropic = pytest.importorskip("anthropic")
    message = {"role": "user", "content": text}
    with (
        anthropic.Anthropic(base_url=base, api_key="sk-ant-dummy") as sdk,
        sdk.messages.stream(model="m", max_tokens=50, messages=[message]) as stream,
    ):
        return stream.get_final_text()


def use_chat(base: str, text: str) -> str:
    openai = pytest.importorskip("openai")
    with openai.OpenAI(base_url=f"{base}/v1", api_key="sk-proj-dummy") as sdk:
        answer = sdk.chat.completions.create(model="m", messages=[{"role": "user", "content": text}])
        return answer.choices[0].message.content


JS_SDKS = """
const [base, sdk, content] = process.argv.slice(1);
const messages = [{ role: "user", content }];
if (sdk === "anthropic") {
  const { default: Anthropic } = await import("@anthropic-ai/sdk");
  const stream = new Anthropic({ baseURL: base, apiKey: "sk-ant-dummy" }).messages.stream(
    { model: "m", max_tokens: 50, messages });
  console.log(await stream.finalText());
} else {
  const { default: OpenAI } = await import("openai");
  const client = new OpenAI({ baseURL: `${base}/v1`, apiKey: "sk-proj-dummy" });
  console.log((await client.chat.completions.create({ model: "m", messages })).choices[0].message.content);
}
"""


def use_js(sdk: str, base: str, text: str) -> str:
    """Ask through an SDK for JavaScript."""
    try:
        folder, node = program("js-sdks").parents[3], program("node")
    except Missing as missing:
        pytest.skip(f"the SDKs for JavaScript were not driven: {missing}")
    line = [str(node), "--input-type=module", "-e", JS_SDKS, base, sdk, text]
    done = subprocess.run(line, cwd=folder, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def use_responses(base: str, text: str) -> str:
    openai = pytest.importorskip("openai")
    with openai.OpenAI(base_url=f"{base}/v1", api_key="sk-proj-dummy") as sdk:
        return sdk.responses.create(model="m", input=text).output_text


SDKS = {
    "anthropic": use_anthropic,
    "openai chat": use_chat,
    "openai responses": use_responses,
    "anthropic js": partial(use_js, "anthropic"),
    "openai js": partial(use_js, "openai"),
}


@pytest.mark.parametrize(("teller", "asker"), [("anthropic", "openai chat"), ("openai chat", "openai responses"),
                                               ("openai responses", "anthropic"), ("anthropic js", "openai js"),
                                               ("openai js", "anthropic js")])  # fmt: skip
def test_what_one_sdk_is_told_the_other_knows(teller, asker, proxy, home, model, wait_until_known) -> None:
    with tap(proxy()) as listening:
        assert SDKS[teller](listening.url, TOLD) == "OK."
        wait_until_known("9417")
        assert SDKS[asker](listening.url, ASKED) == "OK."
    assert_only_blocks_added([sent.body for sent in listening.sent], [request.raw for request in model.requests])
    assert ASKED in json.dumps(model.requests[-1].body)
    assert "9417" in json.dumps(model.requests[-1].body) and "[perdure-recall " in json.dumps(model.requests[-1].body)
    with perdure.open(home, user="tester") as opened:
        assert opened.search("9417", filters=Filters(tags=("proxy",))).hits


@pytest.mark.parametrize("name", TOOL)
def test_a_client_without_hooks_remembers(name, client, proxy, home, model, wait_until_known) -> None:
    """Told by a program, known in the client; its requests keep their prefix, and both sides are captured."""
    base = proxy()
    use_chat(base, TOLD)
    wait_until_known("9417")
    tested = client(name, setup=False)
    n_before = len(model.requests)
    with tap(base) as listening:
        tested.url = listening.url
        getattr(tested, f"_prepare_{name.partition('-')[0]}")()
        done = tested.say(f"{ASKED}\n{TOOL[name]}\n@say It is the ninth.")
        assert done.status == 0 and "It is the ninth." in done.out, done
        more = (
            tested.run("exec", "resume", "--last", "And the second one?\n@say Second.")
            if name == "codex"
            else tested.say("And the second one?\n@say Second.", *AGAIN[name])
        )
        assert more.status == 0 and "Second." in more.out, more
    asked = [request for request in listening.sent if request.path.partition("?")[0].endswith(ENDINGS)]
    received = model.requests[n_before:]
    assert_only_blocks_added([request.body for request in asked], [request.raw for request in received])
    sent = main_requests(model.requests[n_before:])
    assert len(sent) == 3 and all("9417" in json.dumps(body) for body in sent)
    assert all(json.dumps(body).count("begins]") == json.dumps(sent[0]).count("begins]") for body in sent[:2])
    for before, after in itertools.pairwise(sent):
        n_kept, n_before_pieces = kept_prefix(before, after)
        assert n_kept == n_before_pieces
    assert all(
        "[perdure-recall " not in json.dumps(r.body) for r in model.requests[n_before:] if not r.body.get("tools")
    )
    wait_until_known("ninth")
    with perdure.open(home, user="tester") as opened:
        answers = [hit for hit in opened.search("ninth").hits if hit.role == "assistant" and "ninth" in hit.text]
        assert len(answers) == 1 and opened.search("ninth", filters=Filters(tags=("proxy", name))).hits
        assert opened.search("ninth", filters=Filters(projects=(str(tested.project),))).hits


def test_codex_that_wants_a_websocket_goes_on_over_http(client, proxy, model) -> None:
    tested = client("codex", setup=False)
    with tap(proxy()) as listening:
        tested.url = listening.url
        tested._prepare_codex()
        config = tested.user_home / ".codex" / "config.toml"
        config.write_text(config.read_text().replace("wire_api", "supports_websockets = true\nwire_api"))
        assert "Eighth." in tested.say("How many?\n@say Eighth.").out
    assert [request.header("upgrade") for request in listening.sent if request.method == "GET"][-1:] == ["websocket"]
    assert [request.body["input"][-1]["role"] for request in model.requests] == ["user"]


def test_the_same_client_with_hooks_is_not_captured_twice(client, proxy, home, model, wait_until_known) -> None:
    base = proxy()
    tested = client("claude-code", setup=False)
    tested.url = base
    settings = home.parent / ".claude" / "settings.json"  # of the person who runs the proxy
    done = tested.perdure("install", "claude-code", "--no-service", home=home)
    assert done.status == 0, done.err
    settings.parent.mkdir(exist_ok=True)
    settings.write_bytes((tested.user_home / ".claude" / "settings.json").read_bytes())
    assert "Seventh." in tested.say("How many?\n@say Seventh.").out
    wait_until_known("Seventh")
    with perdure.open(home, user="tester") as opened:
        hits = opened.search("Seventh").hits
    assert {hit.runtime for hit in hits} == {"claude-code"}
