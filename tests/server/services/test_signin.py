"""Sign-in by an identity provider: what is not of this provider, this client and this sign-in begins no session."""

import base64
import hashlib
import itertools
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from joserfc.jwk import ECKey

from penstock.core.model.access import Level
from penstock.server.services.signin import asking, provider, service
from penstock.testing.builders import cluster_file
from penstock.testing.server import InProcessServer
from tests.server.harness import until
from tests.server.routes.test_sessions import asked
from tests.server.services.lying_provider import LyingProvider, lying

USERS = [{"name": "ann", "tenants": {"default": "member"}}, {"name": "off", "role": "viewer", "disabled": True}]
codes = itertools.count()


class Scene:
    """A server and its provider; `begin` and `finish` are what the page does."""

    def __init__(self, server: InProcessServer, provider: LyingProvider, declared: dict[str, Any]) -> None:
        self.server, self.provider, self.declared = server, provider, declared

    def declare(self, **oidc: Any) -> None:
        file = cluster_file(1, 1) | {"users": USERS, "oidc": self.declared | oidc}
        status, said = asked(self.server, "POST", "/config", self.server.token, {"config": file})
        assert status == 200, said

    def start(self, uri: str = "") -> tuple[int, Any]:
        return asked(self.server, "POST", "/oidc/start", body={"redirect_uri": uri or self.callback})

    @property
    def callback(self) -> str:
        return f"{self.server.url}/login/callback"

    def begin(self) -> dict[str, Any]:
        """Begin, and let the provider know the nonce, as the browser does."""
        status, begun = self.start()
        assert status == 200, begun
        self.provider.claims.setdefault("nonce", self.query(begun)["nonce"])
        return begun

    def query(self, begun: dict[str, Any]) -> dict[str, str]:
        return {name: values[0] for name, values in parse_qs(urlsplit(begun["url"]).query).items()}

    def finish(self, begun: dict[str, Any], **changed: str) -> tuple[int, Any]:
        body = {"code": f"c{next(codes)}", "state": begun["state"], "code_verifier": begun["code_verifier"]}
        return asked(self.server, "POST", "/oidc/finish", body=body | changed)

    def sign_in(self, **claims: Any) -> tuple[int, Any]:
        self.provider.claims = claims
        return self.finish(self.begin())


@pytest.fixture(scope="module")
def running() -> Iterator[tuple[InProcessServer, LyingProvider, dict[str, Any]]]:
    with lying() as made:
        declared = {"issuer": made.issuer, "client_id": "penstock"}
        with InProcessServer(cluster_file(1, 1) | {"users": USERS, "oidc": declared}) as server:
            yield server, made, declared


@pytest.fixture
def scene(running) -> Iterator[Scene]:
    server, made, declared = running
    server._backend.gate._failed._buckets.clear()  # many sign-ins from one address
    kept = dict(vars(made))
    yield Scene(server, made, declared)
    made.answering.set()
    for name in vars(made).keys() - kept.keys():
        delattr(made, name)
    vars(made).update(kept | {"claims": {}, "description": {}, "userinfo": {}, "asked": [], "forms": [], "secrets": []})


@pytest.fixture
def declaring(scene) -> Iterator[Scene]:
    """For tests that declare something else: it is as before after them."""
    yield scene
    scene.declare()


def test_a_code_begins_a_session_of_its_user_with_the_declared_level(scene):
    status, session = scene.sign_in()
    assert (status, session["user"]) == (200, "ann")
    assert asked(scene.server, "GET", "/me", session["token"])[1]["level"] == "write"
    form = scene.provider.forms[-1]
    assert form["redirect_uri"] == scene.callback
    assert form["client_id"] == "penstock"


def test_the_challenge_is_of_the_verifier_and_the_url_holds_no_verifier(scene):
    begun = scene.begin()
    query = scene.query(begun)
    assert (query["code_challenge_method"], query["response_type"]) == ("S256", "code")
    assert begun["code_verifier"] not in begun["url"]
    challenge = hashlib.sha256(begun["code_verifier"].encode()).digest()
    assert query["code_challenge"] == base64.urlsafe_b64encode(challenge).rstrip(b"=").decode()


@pytest.mark.parametrize(
    ("claims", "why"),
    [
        ({"nonce": "of another sign-in"}, "nonce"),
        ({"nonce": None}, "nonce"),
        ({"aud": "another client"}, "aud"),
        ({"aud": ["penstock", "other"]}, "azp"),
        ({"azp": "another client"}, "azp"),
        ({"iss": "http://127.0.0.1:1"}, "iss"),
        ({"exp": 1_000}, "exp"),
        ({"exp": None}, "exp"),
        ({"iat": 9_999_999_999}, "iat"),
        ({"sub": None}, "sub"),
        ({"at_hash": "AAAA"}, "at_hash"),
    ],
)
def test_a_token_with_a_wrong_claim_signs_nobody_in(scene, claims, why):
    status, problem = scene.sign_in(**claims)
    assert (status, problem["code"]) == (401, "unauthenticated")
    assert why in problem["title"]


def test_a_token_signed_by_another_key_signs_nobody_in(scene):
    scene.provider.key = ECKey.generate_key("P-256", {"kid": "first"})
    status, problem = scene.sign_in()
    assert (status, problem["title"]) == (401, "the ID token is not signed by a key of the identity provider")


def test_a_token_without_a_signature_or_with_an_hmac_signs_nobody_in(scene):
    def unsigned(alg: str) -> str:
        parts = (json.dumps(part).encode() for part in ({"alg": alg, "kid": "first"}, _claims_of(signed())))
        return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts) + "."

    signed = scene.provider.token
    for alg in ("none", "HS256"):
        scene.provider.token = lambda alg=alg: unsigned(alg)
        status, problem = scene.sign_in()
        assert (status, "cannot be read" in problem["title"]) == (401, True), problem


def _claims_of(token: str) -> Any:
    return json.loads(base64.urlsafe_b64decode(token.split(".")[1] + "=="))


def test_keys_that_the_provider_changed_are_read_again(declaring, monkeypatch):
    declaring.declare(name="with other keys")
    scene = declaring
    assert scene.sign_in()[0] == 200
    monkeypatch.setattr(provider, "KEYS_AGAIN_S", 0.0)
    scene.provider.key = scene.provider.published = ECKey.generate_key("P-256", {"kid": "second"})
    scene.provider.header = {"alg": "ES256", "kid": "second"}
    assert scene.sign_in()[0] == 200


def test_a_state_is_taken_once_and_a_code_too(scene):
    begun = scene.begin()
    assert scene.finish(begun, code="once")[0] == 200
    status, problem = scene.finish(begun)
    assert (status, problem["hint"]) == (401, "sign in again")
    scene.provider.claims = {}
    status, problem = scene.finish(scene.begin(), code="once")
    assert (status, "used before" in problem["title"]) == (401, True)


def test_a_state_of_another_server_or_browser_or_time_is_refused_before_the_provider_is_asked(scene):
    begun, other = scene.begin(), scene.begin()
    scene.provider.asked.clear()
    forged = begun["state"][:-4] + ("AAAA" if begun["state"][-4:] != "AAAA" else "BBBB")
    tries = [{"state": forged}, {"code_verifier": other["code_verifier"]}, {"state": other["state"]}, {"state": "x"}]
    assert [scene.finish(begun, **one)[0] for one in tries] == [401] * 4
    scene.server.advance(601)
    assert scene.finish(begun)[0] == 401
    assert scene.provider.asked == []


@pytest.mark.parametrize(
    "uri",
    [
        "https://evil.example/login/callback",
        "http://127.0.0.1:1/login/callback",
        "http://{host}@evil.example/login/callback",
        "https://evil.example/?{host}/login/callback",
        "https://evil.example\\@{host}/login/callback",
        "javascript:alert(1)//login/callback",
        "http://{host}/login/callback?next=https://evil.example",
        "http://{host}/jobs",
        "/login/callback",
    ],
)
def test_the_browser_is_sent_back_to_this_server_alone(scene, uri):
    status, problem = scene.start(uri.format(host=urlsplit(scene.server.url).netloc))
    assert (status, problem["problems"][0]["field"]) == (422, "redirect_uri")


def test_declared_addresses_are_the_only_ones(declaring):
    declaring.declare(addresses=["https://lab.example.org/penstock"])
    assert declaring.start()[0] == 422
    status, begun = declaring.start("https://lab.example.org/penstock/login/callback")
    assert (status, declaring.query(begun)["redirect_uri"]) == (200, "https://lab.example.org/penstock/login/callback")


def test_a_session_ends_when_its_user_is_disabled_the_level_falls_or_the_provider_is_no_longer_declared(declaring):
    _, session = declaring.sign_in()

    def level() -> Level | int:
        status, me = asked(declaring.server, "GET", "/me", session["token"])
        return me["level"] if status == 200 else status

    declaring.declare(level="read")
    assert level() == "read"
    USERS[0]["disabled"] = True
    declaring.declare()
    assert level() == 401
    USERS[0].pop("disabled")
    declaring.declare()
    assert level() == "write"
    asked(declaring.server, "POST", "/config", declaring.server.token, {"config": {"users": USERS}})
    assert level() == 401


def test_a_renewed_session_lasts_no_longer_than_declared(declaring):
    declaring.declare(session="2h")
    _, session = declaring.sign_in()
    declaring.server.advance(5_400)
    status, again = asked(declaring.server, "POST", "/sessions", session["token"])
    assert (status, again["expires_ms"]) == (200, session["expires_ms"])


@pytest.mark.parametrize(
    ("oidc", "claims", "user"),
    [
        ({}, {"preferred_username": "nobody"}, "there is no user 'nobody' here"),
        ({}, {"preferred_username": "off"}, "the user 'off' is disabled"),
        ({}, {"preferred_username": None}, "does not say your 'preferred_username'"),
        ({}, {"preferred_username": ["ann"]}, "does not say your 'preferred_username'"),
        ({"claim": "email", "domain": "x.org"}, {"email": "ann@x.org"}, "has not verified your e-mail address"),
        ({"domain": "x.org"}, {"preferred_username": "ann@y.org"}, "is not of the domain"),
        ({"domain": "x.org"}, {"preferred_username": "ann"}, "is not of the domain"),
        ({"groups": ["ml"]}, {"groups": ["sales", 1]}, "is in none of the groups"),
        ({"groups": ["ml"]}, {}, "is in none of the groups"),
    ],
)
def test_an_identity_of_no_enabled_user_is_refused_with_the_reason(declaring, oidc, claims, user):
    declaring.declare(**oidc)
    declaring.provider.userinfo = {"sub": "1"}
    status, problem = declaring.sign_in(**claims)
    assert status in (401, 403)
    assert user in problem["title"]


@pytest.mark.parametrize(
    ("oidc", "claims"),
    [
        ({"claim": "email", "domain": "x.org"}, {"email": "ann@X.org", "email_verified": True}),
        ({"users": {"a.smith@y.org": "ann"}}, {"preferred_username": "a.smith@y.org"}),
        ({"groups": ["ml", "hpc"]}, {"groups": ["hpc"]}),
        ({"groups": ["ml"], "groups_claim": "roles"}, {"roles": "ml"}),
    ],
)
def test_claims_are_mapped_to_users_as_declared(declaring, oidc, claims):
    declaring.declare(**oidc)
    status, session = declaring.sign_in(**claims)
    assert (status, session.get("user")) == (200, "ann")


def test_what_the_token_lacks_is_read_of_the_same_person_alone(scene):
    scene.provider.userinfo = {"sub": "1", "preferred_username": "ann"}
    assert scene.sign_in(preferred_username=None)[0] == 200
    scene.provider.userinfo = {"sub": "2", "preferred_username": "ann"}
    status, problem = scene.sign_in(preferred_username=None)
    assert (status, problem["code"]) == (502, "provider_failed")


def test_the_secret_comes_from_the_vault_and_is_shown_nowhere(declaring):
    server = declaring.server
    server.client.set_secret("oidc", "hush: 100%")
    owner = server.client.me().user
    declaring.declare(client_secret_name="oidc", client_secret_owner=owner)
    assert declaring.sign_in()[0] == 200
    assert base64.b64decode(declaring.provider.secrets[-1].removeprefix("Basic ")) == b"penstock:hush%3A%20100%25"
    assert "hush" not in json.dumps(asked(server, "GET", "/config", server.token)[1])
    asked(server, "PUT", "/secrets/oidc", server.client.create_token({"user": "ann"}).token, {"value": "of ann's jobs"})
    declaring.declare(client_secret_name="oidc", client_secret_owner="ann")
    status, problem = declaring.sign_in()
    assert (status, problem["title"]) == (502, "client_secret_owner is no administrator")


def test_a_secret_file_that_others_could_write_or_that_is_not_there_is_refused(declaring, tmp_path):
    path = tmp_path / "secret"
    declaring.declare(client_secret_file=str(path))
    assert "cannot be read: FileNotFoundError" in declaring.sign_in()[1]["title"]
    path.write_text("hush\n", encoding="ascii")
    path.chmod(0o666)
    assert declaring.sign_in()[1]["title"] == "client_secret_file could be written by others"
    path.chmod(0o600)
    assert declaring.sign_in()[0] == 200


def test_a_provider_that_is_slow_delays_sign_ins_alone(declaring, monkeypatch):
    """It does not answer at all here; others are answered, and more sign-ins of one network are refused at once."""
    declaring.declare(name="anew")
    provider = declaring.provider
    provider.answering.clear()
    with ThreadPoolExecutor(service.OWN_AT_ONCE) as people:
        waiting = [people.submit(declaring.start) for _ in range(service.OWN_AT_ONCE)]
        until(lambda: declaring.server._signins._asking.total() == service.OWN_AT_ONCE, "all wait for the provider")
        assert asked(declaring.server, "GET", "/me", declaring.server.token)[0] == 200
        assert declaring.start()[0] == 503
        provider.answering.set()
        assert [one.result()[0] for one in waiting] == [200] * service.OWN_AT_ONCE
    assert len([path for path in provider.asked if path == "/.well-known/openid-configuration"]) == 1


def test_a_provider_that_is_down_is_asked_once_in_a_while(declaring):
    provider = declaring.provider
    provider.answer = lambda *_: (503, {})
    declaring.declare(name="down")
    for _ in range(3):
        status, problem = declaring.start()
        assert (status, problem["code"]) == (502, "provider_failed")
    assert len(provider.asked) == 1


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"issuer": "https://other.example"}, "calls itself 'https://other.example'"),
        ({"token_endpoint": "http://10.0.0.1/token"}, "'token_endpoint' is no address of https"),
        ({"authorization_endpoint": "javascript:alert(1)"}, "'authorization_endpoint' is no address of https"),
        ({"jwks_uri": ""}, "'jwks_uri' is no address of https"),
        ({"padding": "x" * asking.ANSWER_MAX_BYTES}, "more than 512 KiB"),
    ],
)
def test_a_description_that_cannot_be_trusted_is_refused(declaring, said, why):
    declaring.declare(name=f"another {next(codes)}")
    declaring.provider.description = said
    status, problem = declaring.start()
    assert (status, why in problem["title"]) == (502, True), problem


def test_sign_ins_from_one_address_are_as_seldom_as_failed_logins(scene):
    body = {"code": "x", "state": "x", "code_verifier": "x"}
    statuses = {asked(scene.server, "POST", "/oidc/finish", body=body)[0] for _ in range(60)}
    assert statuses == {401, 429}


def test_without_a_provider_there_is_no_way_in(scene):
    with InProcessServer(cluster_file(1, 1)) as server:
        assert asked(server, "GET", "/oidc") == (200, {"available": False, "name": ""})
        assert asked(server, "POST", "/oidc/start", body={"redirect_uri": "x"})[0] == 404
