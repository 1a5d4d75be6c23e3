"""Who is let in, and that no other place can make a visitor do anything."""

from perdure.surfaces.web.routes import TABLE

FORM = [("to", "/")]


def test_a_link_lets_one_visitor_in_once(house):
    home = house()
    link = home.link().partition("127.0.0.1")[2].partition("/")[2]
    first, second = home.stranger(), home.stranger()
    assert first.get(f"/{link}").text("h1") == "Home"
    refused = second.get(f"/{link}")
    assert refused.status == 401 and "already used" in refused.text()
    assert second.ask("GET", "/").headers["location"] == "/enter?to=%2F"


def test_link_redirects_only_within_the_page(house):
    home = house()
    for to, where in (("/search?q=x", "/search?q=x"), ("//evil.example/", "/"), ("https://evil.example", "/")):
        path = "/" + home.link().partition("//")[2].partition("/")[2]
        assert home.stranger().ask("GET", f"{path}?to={to}").headers["location"] == where


def test_machine_secret_lets_its_user_in_until_it_is_revoked(house):
    home = house()
    machine, secret = home.opened.sharing.machines.register("bob", "phone")
    bob = home.stranger()
    wrong = bob.send("/enter", [("secret", "pdr-wrong"), *FORM])
    assert wrong.status == 401 and "not the secret of a registered machine" in wrong.text()
    assert bob.send("/enter", [("secret", secret), *FORM]).status == 303
    assert "bob" in bob.get("/").text(".who") and "Jobs" not in bob.get("/").texts("nav a")
    home.opened.sharing.machines.revoke(machine.machine_id)
    assert bob.ask("GET", "/").status == 303


def test_every_address_requires_a_sign_in(house):
    stranger = house().stranger()
    for view in TABLE:
        seen = stranger.ask(view.method, view.path.replace("{", "x").replace("}", "x"))
        assert (seen.status, seen.headers["location"][:6]) == (303, "/enter"), view.path


def test_leaving_ends_the_session_everywhere(visitor):
    kept = dict(visitor.cookies)
    visitor.post("/leave")
    visitor.cookies = kept
    assert visitor.ask("GET", "/").status == 303


def test_a_lost_browser_is_shut_out(house):
    home = house()
    here, lost = home.visitor(), home.visitor()
    here.post("/leave", everywhere="1")
    assert lost.ask("GET", "/").status == here.ask("GET", "/").status == 303


def test_link_preview_does_not_use_up_the_link(house):
    home = house()
    path = "/" + home.link().partition("//")[2].partition("/")[2]
    for method, headers in (
        ("HEAD", {}), ("GET", {"Sec-Purpose": "prefetch"}), ("GET", {"Sec-Fetch-Dest": "image"}),
    ):  # fmt: skip
        seen = home.stranger().ask(method, path, **headers)
        assert (seen.status, seen.headers["set-cookie"]) == (204, None)
    assert home.stranger().get(path).text("h1") == "Home"


def test_no_host_that_a_request_names_is_led_to(visitor):
    seen = visitor.ask("GET", "/memories/", Host="evil.example")
    assert seen.status == 421 and not seen.headers["location"]


def test_a_session_outlives_the_server(house):
    home = house()
    visitor = home.visitor()
    home.listener.close()
    visitor.address = home.link().partition("/enter")[0]
    assert visitor.get("/").status == 200


def test_typed_text_is_returned_after_the_session_ends(house):
    home = house()
    visitor, token = home.visitor(), ""
    token = visitor.token()
    visitor.cookies.clear()
    fields = [("text", "We sail on Fridays </textarea>"), ("kind", "fact"), ("token", token)]
    seen = visitor.send("/memories/new", fields, Referer=f"{visitor.address}/memories/new?x=1")
    assert seen.status == 401 and seen.texts("textarea") == ["We sail on Fridays </textarea>", "fact"]
    assert seen.links() == ["/enter?to=%2Fmemories%2Fnew%3Fx%3D1"]
    foreign = visitor.send("/memories/new", fields, Origin="https://evil.example")
    assert "sail" not in foreign.html
    again = home.visitor()
    other = again.send("/memories/new", fields)
    assert other.status == 403 and "We sail on Fridays </textarea>" in other.texts("textarea")


def test_sign_in_page_says_how_to_return_here(house):
    seen = house().stranger().get("/memories?q=port&kind=fact")
    assert "perdure page --at '/memories?q=port&kind=fact'" in seen.text()


def test_form_from_another_site_changes_nothing(visitor):
    token = visitor.token()
    assert visitor.send("/leave", []).status == 403
    assert visitor.send("/leave", [("token", "0" * 64)]).status == 403
    assert visitor.send("/leave", [("token", token)], Sec_Fetch_Site="cross-site").status == 403
    assert visitor.send("/leave", [("token", token)], Origin="https://evil.example").status == 403
    assert visitor.get("/").text("h1") == "Home"


def test_every_page_sends_the_security_headers(visitor):
    headers = visitor.get("/").headers
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy and "http" not in policy
    assert headers["cache-control"] == "no-store" and headers["x-frame-options"] == "DENY"
    cookie = visitor.ask("GET", "/enter/none").headers
    assert cookie["content-security-policy"] == policy


def test_cookie_is_limited_to_this_home(house):
    home = house()
    path = "/" + home.link().partition("//")[2].partition("/")[2]
    said = home.stranger().ask("GET", path).headers["set-cookie"]
    assert "HttpOnly" in said and "SameSite=strict" in said and "Domain" not in said


def test_guessing_is_slowed_down(house):
    stranger = house().stranger()
    statuses = [stranger.send("/enter", [("secret", f"pdr-{n}"), *FORM]).status for n in range(14)]
    assert statuses[0] == 401 and statuses[-1] == 429


def test_unknown_address_shows_an_error_page(visitor):
    seen = visitor.get("/nothing/here?<script>")
    assert seen.status == 404 and "Page not found" in seen.text("h1")
    assert "<script>" not in seen.html.replace("<script src=", "")
