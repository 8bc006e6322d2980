"""Sign-ins at the declared identity provider: begun with a signed state, finished with the provider's code, once.

Nothing is stored for a sign-in that has begun: the state says what belongs to it, and the browser keeps the verifier.
The provider is asked in threads of their own: while it is slow, nothing but sign-ins waits.
"""

import asyncio
import base64
import functools
import hashlib
import hmac
import importlib.util
import logging
import secrets
from collections import Counter, OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

import msgspec

from penstock.api.sessions import OidcView, SignInBegun
from penstock.core.config.oidc import is_secure_url
from penstock.core.model.errors import Problem
from penstock.core.model.oidc import CALLBACK, IdentityProvider, refusal
from penstock.privatefiles import NotPrivate, check
from penstock.security.vault import VaultError
from penstock.server.backend import Backend
from penstock.server.http.limits import network_of
from penstock.server.http.parsing import invalid
from penstock.server.http.pools import ASIDE
from penstock.server.http.responses import ApiError
from penstock.server.http.sessions import Session, identified
from penstock.server.http.signed import signed, verified
from penstock.server.services.signin.errors import ProviderFailed, SignInRefused
from penstock.server.services.signin.provider import Exchange, Provider

log = logging.getLogger(__name__)

PREFIX = "pso_"
BEGUN_MS = 600_000
"""Time to sign in at the provider."""
USED_MAX = 10_000
"""States remembered as used; the provider takes no code twice either."""
THREADS = 4
AT_ONCE, OWN_AT_ONCE = 32, 4
"""Sign-ins that wait for the provider: all, and those from one network."""
SECRET_MAX_BYTES = 4_096
T = TypeVar("T")


class BegunState(msgspec.Struct, frozen=True, array_like=True):
    """What a sign-in that has begun is about."""

    id: str
    issuer: str
    redirect_uri: str
    nonce: str
    verifier_sha256: str
    expires_ms: int


class SignInService:
    """One for each server; lives on the event loop."""

    def __init__(self, backend: Backend) -> None:
        self._backend, self._key = backend, backend.sessions.key_for("sign-in")
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix=f"{ASIDE}-signin")
        self._provider: Provider | None = None
        self._used: OrderedDict[str, int] = OrderedDict()
        self._asking: Counter[str] = Counter()

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def view(self) -> OidcView:
        """Return whether people can sign in this way."""
        declared = self._backend.state.config.oidc
        if not declared.issuer or not _installed():
            return OidcView(available=False)
        return OidcView(available=True, name=declared.name or urlsplit(declared.issuer).hostname or "")

    async def begin(self, redirect_uri: str, host: str, address: str) -> SignInBegun:
        """Begin a sign-in. Raises: ApiError.

        Args:
            redirect_uri: the page that the provider sends the browser back to.
            host: that the request came to, with its port; address: that it came from.
        """
        provider = self._declared()
        check_redirect(redirect_uri, provider.declared, host)
        known = provider.known()
        endpoints = known if known is not None else await self._ask(address, provider.endpoints)
        verifier, nonce = secrets.token_urlsafe(48), secrets.token_urlsafe(24)
        expires_ms = self._backend.clock.unix_ms() + BEGUN_MS
        named = (secrets.token_urlsafe(16), provider.declared.issuer, redirect_uri, nonce)
        state = signed(PREFIX, self._key, BegunState(*named, _digest(verifier), expires_ms))
        challenge = _challenge(verifier)
        url = provider.url(endpoints, state=state, nonce=nonce, challenge=challenge, redirect_uri=redirect_uri)
        return SignInBegun(url, state, verifier, expires_ms)

    async def finish(self, code: str, state: str, verifier: str, address: str) -> Session:
        """Return the session of the user that the code stands for. Raises: ApiError."""
        provider = self._declared()
        begun = self._take(state, verifier, provider.declared.issuer)

        def identity() -> tuple[str, tuple[str, ...]]:
            secret = self._secret(provider.declared)
            return provider.identity(Exchange(code, begun.redirect_uri, verifier, begun.nonce, secret))

        name, groups = await self._ask(address, identity)
        return self._session(provider.declared, name, groups)

    def _declared(self) -> Provider:
        declared = self._backend.state.config.oidc
        if not declared.issuer:
            hint = "an administrator may declare one: oidc in the cluster file"
            raise ApiError("not_found", "no identity provider is declared", hint=hint)
        if not _installed():
            hint = "pip install 'penstock[oidc]' on the server"
            raise ApiError("unavailable", "the server lacks the libraries for identity providers", hint=hint)
        if self._provider is None or self._provider.declared != declared:
            self._provider = Provider(declared)
        return self._provider

    def _take(self, text: str, verifier: str, issuer: str) -> BegunState:
        """Return what a state says, once."""
        now_ms, found = self._backend.clock.unix_ms(), verified(PREFIX, self._key, text, BegunState)
        while self._used and (len(self._used) > USED_MAX or next(iter(self._used.values())) <= now_ms):
            self._used.popitem(last=False)
        if (
            found is None
            or found.issuer != issuer
            or now_ms >= found.expires_ms
            or found.id in self._used
            or not hmac.compare_digest(found.verifier_sha256, _digest(verifier))
        ):
            title = "this sign-in was begun elsewhere, was finished before, or is too old"
            raise ApiError("unauthenticated", title, hint="sign in again")
        self._used[found.id] = found.expires_ms
        return found

    async def _ask(self, address: str, call: Callable[[], T]) -> T:
        """Return the result of a call that may wait for the provider. Raises: ApiError."""
        network = network_of(address)
        if self._asking[network] >= OWN_AT_ONCE or self._asking.total() >= AT_ONCE:
            raise ApiError("overloaded", "too many sign-ins wait for the identity provider", hint="come back in 10 s")
        self._asking[network] += 1

        def ended(_: object) -> None:
            self._asking[network] -= 1
            if not self._asking[network]:
                del self._asking[network]

        running = asyncio.get_running_loop().run_in_executor(self._pool, call)
        running.add_done_callback(ended)  # its thread is busy for as long, also when nobody waits any more
        try:
            return await asyncio.shield(running)
        except ProviderFailed as error:
            log.warning("the identity provider failed", extra={"what": error.text})
            raise ApiError("provider_failed", error.text, hint=error.hint) from error
        except SignInRefused as error:
            raise ApiError("unauthenticated", error.text, hint=error.hint) from error

    def _secret(self, declared: IdentityProvider) -> str:
        """Return the client's secret, '' where it has none. Raises: ProviderFailed."""
        if declared.client_secret_file:
            return _secret_of(Path(declared.client_secret_file))
        if not declared.client_secret_name:
            return ""
        state, owner = self._backend.state, declared.client_secret_owner
        user = state.config.user_by_name.get(owner)
        if owner not in self._backend.tokens.users and (user is None or user.role != "admin"):
            raise ProviderFailed("client_secret_owner is no administrator", "see oidc in the cluster file")
        named = (one for one in state.secrets.of_user(owner) if one.name == declared.client_secret_name)
        found = next(named, None)
        if found is None or self._backend.vault is None:
            raise ProviderFailed("the client's secret is not set", f"{owner} sets it: penstock secret set")
        try:
            return self._backend.vault.open(found)
        except VaultError as error:
            raise ProviderFailed("the client's secret cannot be opened", error.hint) from error

    def _session(self, declared: IdentityProvider, value: str, groups: tuple[str, ...]) -> Session:
        """Return the session of an identity. Raises: ApiError unless it is one of a declared user, and group."""
        shown = "".join(c if c.isprintable() else "?" for c in value[:80])
        if declared.groups and not set(declared.groups).intersection(groups):
            hint = "an administrator of the identity provider adds you to one: " + ", ".join(declared.groups)[:200]
            raise ApiError("forbidden", f"'{shown}' is in none of the groups that may sign in", hint=hint)
        name = declared.user_of(value)
        if name is None:
            raise ApiError("forbidden", f"'{shown}' is not of the domain that may sign in")
        user = self._backend.state.config.user_by_name.get(name)
        why = refusal(user, shown if name == value else name)
        if user is None or why:
            hint = "an administrator declares users in the cluster file: penstock apply -f FILE"
            raise ApiError("forbidden", f"you are '{shown}' there, but {why}", hint=hint)
        log.info("signed in by the identity provider", extra={"user": user.name})
        return identified(user, declared, self._backend.clock.unix_ms())


def check_redirect(uri: str, declared: IdentityProvider, host: str) -> None:
    """Raises: ApiError unless a provider may send the browser back to `uri`: a page of this server, and no other."""
    base = uri.removesuffix(CALLBACK)
    if declared.addresses:
        allowed, expected = base in declared.addresses, f"one of oidc.addresses, with {CALLBACK}"
    else:
        allowed, expected = urlsplit(base).netloc.lower() == host.lower(), f"https://{host[:80]}{CALLBACK}"
    if base == uri or not is_secure_url(uri) or not allowed:
        text = f"redirect_uri is '{uri[:80]}', expected {expected}"
        raise invalid([Problem("bad_value", "redirect_uri", text, uri[:80])])


@functools.cache
def _installed() -> bool:
    return all(importlib.util.find_spec(name) is not None for name in ("authlib", "joserfc"))


def _secret_of(path: Path) -> str:
    try:
        check(path)
        with path.open("rb") as file:
            text = file.read(SECRET_MAX_BYTES + 1).decode("ascii").strip()
    except NotPrivate as error:
        raise ProviderFailed("client_secret_file could be written by others", error.hint) from error
    except (OSError, ValueError) as error:
        raise ProviderFailed(f"client_secret_file cannot be read: {type(error).__name__}") from error
    if not 0 < len(text) <= SECRET_MAX_BYTES or not text.isprintable():
        raise ProviderFailed("client_secret_file holds no secret of one line")
    return text


def _challenge(verifier: str) -> str:
    """Return the S256 challenge (RFC 7636, 4.2). By hand: Authlib takes long to import, and this is on the loop."""
    return base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode("ascii")


def _digest(verifier: str) -> str:
    return hashlib.sha256(verifier.encode()).hexdigest()
