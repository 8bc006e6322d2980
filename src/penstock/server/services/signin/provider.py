"""One identity provider, as it describes itself: its endpoints and keys, kept for a while, and what it says of codes.

Blocks: it runs in threads of its own (`service.py`).
"""

import base64
import time
from collections.abc import Callable
from threading import Lock
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

from penstock.core.config.oidc import is_secure_url
from penstock.core.model.oidc import IdentityProvider
from penstock.server.services.signin.asking import Answered, ask
from penstock.server.services.signin.errors import ProviderFailed, SignInRefused, WrongToken
from penstock.server.services.signin.idtoken import check_claims, claims_of, signing_keys

WELL_KNOWN = "/.well-known/openid-configuration"
KEPT_S = 3_600.0
"""Life of what was read of a provider."""
FAILED_S = 5.0
"""After a failure the provider is not asked for its description again for so long."""
KEYS_AGAIN_S = 10.0
"""Keys are not read again sooner, whatever key a token names."""
ENDPOINTS = ("authorization_endpoint", "token_endpoint", "jwks_uri")
TOKEN_MAX = 64 * 1024
VALUE_MAX = 256


class Endpoints(NamedTuple):
    authorization: str
    token: str
    keys: str
    userinfo: str
    """Empty where there is none."""
    in_form: bool
    """The secret goes with the form; else by HTTP Basic."""


class Exchange(NamedTuple):
    """A code to be exchanged, and what belongs to it."""

    code: str
    redirect_uri: str
    verifier: str
    nonce: str
    secret: str
    """Empty: the client has none."""


class Provider:
    """What is known of a declared provider. Any thread; one asks at a time.

    Args:
        now_s: real time: that of the provider is real, too.
    """

    def __init__(self, declared: IdentityProvider, now_s: Callable[[], float] = time.time) -> None:
        self.declared, self._now_s = declared, now_s
        self._turn = Lock()
        self._endpoints: Endpoints | None = None
        self._read_at = self._failed_at = self._keys_at = -KEPT_S
        self._failure = ProviderFailed("the identity provider was not asked yet")
        self._keys: Any = None

    def known(self) -> Endpoints | None:
        """Return what is known without asking."""
        return self._endpoints if time.monotonic() - self._read_at < KEPT_S else None

    def endpoints(self) -> Endpoints:
        """Return the endpoints, read where they are not known. Raises: ProviderFailed."""
        with self._turn:
            found = self.known()
            if found is not None:
                return found
            if time.monotonic() - self._failed_at < FAILED_S:
                raise self._failure
            try:
                said = _good(ask(self.declared.issuer.rstrip("/") + WELL_KNOWN), "description")
                self._endpoints, self._read_at = _endpoints(said, self.declared.issuer), time.monotonic()
            except ProviderFailed as error:
                self._failure, self._failed_at = error, time.monotonic()
                raise
            return self._endpoints

    def url(self, endpoints: Endpoints, *, state: str, nonce: str, challenge: str, redirect_uri: str) -> str:
        """Return where the browser goes to."""
        query = {
            "response_type": "code",
            "client_id": self.declared.client_id,
            "redirect_uri": redirect_uri,
            "scope": " ".join(self.declared.scopes),
            "state": state,
            "nonce": nonce,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        return f"{endpoints.authorization}?{urlencode(query)}"

    def identity(self, exchange: Exchange) -> tuple[str, tuple[str, ...]]:
        """Return the claim that names the user, and the groups, of who has got this code.

        Raises: ProviderFailed, SignInRefused.
        """
        endpoints = self.endpoints()
        said = self._exchanged(endpoints, exchange)
        token, access = said.get("id_token"), said.get("access_token")
        access = access if isinstance(access, str) and access.isascii() and access.isprintable() else ""
        if not isinstance(token, str) or len(token) > TOKEN_MAX:
            raise ProviderFailed("the identity provider answered without an ID token", "is openid one of its scopes?")
        try:
            header, claims = self._claims(endpoints, token)
            check_claims(
                header,
                claims,
                issuer=self.declared.issuer,
                client_id=self.declared.client_id,
                nonce=exchange.nonce,
                access_token=access,
                now_s=int(self._now_s()),
            )
        except WrongToken as error:
            hint = "sign in again; the operator looks at `oidc` in the cluster file"
            raise SignInRefused(str(error), hint) from error
        return self._named(self._completed(endpoints, claims, access))

    def _exchanged(self, endpoints: Endpoints, exchange: Exchange) -> dict[str, Any]:
        form = {
            "grant_type": "authorization_code",
            "code": exchange.code,
            "redirect_uri": exchange.redirect_uri,
            "code_verifier": exchange.verifier,
        }
        headers = {}
        if exchange.secret and not endpoints.in_form:
            pair = f"{quote(self.declared.client_id, safe='')}:{quote(exchange.secret, safe='')}"
            headers["Authorization"] = "Basic " + base64.b64encode(pair.encode()).decode("ascii")
        else:
            form["client_id"] = self.declared.client_id
            if exchange.secret:
                form["client_secret"] = exchange.secret
        answered = ask(endpoints.token, form, headers)
        if answered.said.get("error") == "invalid_grant":
            hint = "sign in again"
            raise SignInRefused("the identity provider refuses the code: it was used before, or is too old", hint)
        if answered.said.get("error") == "invalid_client" or answered.status == 401:
            raise ProviderFailed(
                "the identity provider refuses this client", "are client_id and the client's secret right?"
            )
        return _good(answered, "answer to a code")

    def _claims(self, endpoints: Endpoints, token: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return header and claims of a token; the keys are read again where its key is not among them."""
        try:
            return claims_of(token, self._known_keys(endpoints, KEPT_S))
        except KeyError:
            keys = self._known_keys(endpoints, KEYS_AGAIN_S)
        try:
            return claims_of(token, keys)
        except KeyError:
            raise WrongToken("the ID token is not signed by a key of the identity provider") from None

    def _known_keys(self, endpoints: Endpoints, most_s: float) -> Any:
        with self._turn:
            if self._keys is None or time.monotonic() - self._keys_at >= most_s:
                self._keys = signing_keys(_good(ask(endpoints.keys), "keys"))
                self._keys_at = time.monotonic()
            return self._keys

    def _completed(self, endpoints: Endpoints, claims: dict[str, Any], access: str) -> dict[str, Any]:
        """Return the claims with those of the userinfo endpoint, where the ID token lacks what is needed."""
        needed = [self.declared.claim, *([self.declared.groups_claim] if self.declared.groups else [])]
        needed += ["email_verified"] if self.declared.claim == "email" else []
        if not (endpoints.userinfo and access) or all(name in claims for name in needed):
            return claims
        said = _good(ask(endpoints.userinfo, headers={"Authorization": f"Bearer {access}"}), "userinfo")
        if said.get("sub") != claims["sub"]:
            raise ProviderFailed("the identity provider's userinfo is about somebody else")
        return {**said, **claims}

    def _named(self, claims: dict[str, Any]) -> tuple[str, tuple[str, ...]]:
        name = claims.get(self.declared.claim)
        if not isinstance(name, str) or not 0 < len(name) <= VALUE_MAX:
            hint = "the operator looks at oidc.claim and oidc.scopes"
            raise SignInRefused(f"the identity provider does not say your '{self.declared.claim}'", hint)
        if self.declared.claim == "email" and claims.get("email_verified") is not True:
            raise SignInRefused("the identity provider has not verified your e-mail address", "verify it there")
        groups = claims.get(self.declared.groups_claim, ())
        groups = (groups,) if isinstance(groups, str) else groups if isinstance(groups, list) else ()
        return name, tuple(one for one in groups if isinstance(one, str))


def _good(answered: Answered, what: str) -> dict[str, Any]:
    if answered.status != 200 or not answered.said:
        raise ProviderFailed(f"the identity provider's {what} cannot be used: HTTP {answered.status}")
    return answered.said


def _endpoints(said: dict[str, Any], issuer: str) -> Endpoints:
    """Read a description (OpenID Connect Discovery 1.0, section 3). Raises: ProviderFailed."""
    if said.get("issuer") != issuer:
        shown = str(said.get("issuer"))[:100]
        raise ProviderFailed(f"the identity provider calls itself '{shown}'", "write oidc.issuer exactly so")
    found = {name: said.get(name) or "" for name in (*ENDPOINTS, "userinfo_endpoint")}
    for name, url in found.items():
        if not isinstance(url, str) or (url and not is_secure_url(url)) or (name in ENDPOINTS and not url):
            raise ProviderFailed(f"the identity provider's '{name}' is no address of https")
    ways = said.get("token_endpoint_auth_methods_supported") or ["client_secret_basic"]
    in_form = isinstance(ways, list) and "client_secret_basic" not in ways and "client_secret_post" in ways
    authorization, token, keys, userinfo = map(str, found.values())
    return Endpoints(authorization, token, keys, userinfo, in_form)
