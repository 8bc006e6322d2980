"""Where the API server is and who asks: a kubeconfig, or the service account of the pod that this runs in.

Tokens are never kept longer than they hold: a projected token file is read again every minute, a credential plugin is
run again when its answer expires, and both after the server refused the token (401).
"""

import asyncio
import base64
import json
import os
import ssl
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import msgspec

from penstock import starts
from penstock.engines.kubernetes.api.errors import BadCredentials
from penstock.yamltext import loaded

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
FILE_HOLDS_S = 60.0
"""A token file is read again after this long; the kubelet replaces it well before it expires."""
PLUGIN_WAIT_S = 60.0
"""A credential plugin has ended by then."""
PLUGIN_OUTPUT_MAX = 2**20
EXPIRES_EARLY_S = 60.0
"""A token of a plugin is replaced this long before it expires."""
KUBECONFIGS_MAX = 64
EXEC_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")


class Tokens(Protocol):
    """Gives bearer tokens."""

    async def token(self) -> str:
        """Return the token to send now; empty: none. Raises: BadCredentials."""
        ...

    def refused(self) -> None:
        """Forget a token that the server has refused."""
        ...


class FixedToken:
    """A token that stands in the kubeconfig; empty where a client certificate says who asks."""

    def __init__(self, token: str = "") -> None:
        self._token = token

    async def token(self) -> str:
        return self._token

    def refused(self) -> None:
        """Nothing else is known."""


class TokenFile:
    """A token in a file that somebody else renews."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._token, self._read_s = "", 0.0

    async def token(self) -> str:
        now_s = time.monotonic()
        if not self._token or now_s - self._read_s > FILE_HOLDS_S:
            try:
                self._token = self._path.read_text("utf-8").strip()
            except (OSError, UnicodeDecodeError) as error:
                raise BadCredentials(f"the token file {self._path} cannot be read: {error}") from None
            self._read_s = now_s
        return self._token

    def refused(self) -> None:
        self._token = ""


class PluginToken:
    """A token that a credential plugin prints (`users[].user.exec` of a kubeconfig).

    Source: https://kubernetes.io/docs/reference/access-authn-authz/authentication/#client-go-credential-plugins
    """

    def __init__(self, command: Sequence[str], env: Mapping[str, str], version: str, hint: str = "") -> None:
        self._command, self._env, self._version, self._hint = tuple(command), dict(env), version, hint
        self._token, self._until_s = "", 0.0
        self._asking = asyncio.Lock()

    async def token(self) -> str:
        async with self._asking:
            if not self._token or time.time() >= self._until_s - EXPIRES_EARLY_S:
                self._token, self._until_s = _answered(await self._run(), self._command[0])
        return self._token

    def refused(self) -> None:
        self._token = ""

    async def _run(self) -> bytes:
        info = {"apiVersion": self._version, "kind": "ExecCredential", "spec": {"interactive": False}}
        env = {**os.environ, **self._env, "KUBERNETES_EXEC_INFO": json.dumps(info)}
        name = self._command[0]
        program = name if os.sep in name else starts.tool(name)
        if program is None:
            raise BadCredentials(f"the credential plugin {name} is not installed", hint=self._hint)
        try:
            process = await asyncio.create_subprocess_exec(
                program,
                *self._command[1:],
                cwd="/",
                env=env,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
        except OSError as error:
            raise BadCredentials(f"the credential plugin {name} cannot be run: {error}", hint=self._hint) from None
        try:
            out, said = await asyncio.wait_for(process.communicate(), PLUGIN_WAIT_S)
        except TimeoutError:
            process.kill()
            await process.wait()
            raise BadCredentials(f"the credential plugin {name} did not answer within {PLUGIN_WAIT_S:.0f} s") from None
        if process.returncode or len(out) > PLUGIN_OUTPUT_MAX:
            text = said.decode("utf-8", "replace").strip()[-300:]
            raise BadCredentials(f"the credential plugin {name} ended with {process.returncode}: {text}")
        return out


def _answered(out: bytes, name: str) -> tuple[str, float]:
    """Return the token of a plugin's answer, and until when it holds (unix s; for ever where it does not say)."""
    try:
        status = json.loads(out)["status"]
        token, until = status["token"], status.get("expirationTimestamp")
        until_s = datetime.fromisoformat(until).timestamp() if until else float("inf")
    except (ValueError, KeyError, TypeError, AttributeError):
        raise BadCredentials(f"the credential plugin {name} did not print an ExecCredential with a token") from None
    if not isinstance(token, str) or not token:
        raise BadCredentials(f"the credential plugin {name} printed no token")
    return token, until_s


class Access(msgspec.Struct, frozen=True):
    """How to reach one API server.

    Args:
        server: its address, such as `https://10.0.0.1:6443`.
        security: of TLS; None where the server speaks plain HTTP, as on loopback in tests.
        namespace: of the kubeconfig's context, or of the pod.
    """

    server: str
    tokens: Tokens
    security: ssl.SSLContext | None = None
    namespace: str = "default"


def in_cluster(folder: Path = SERVICE_ACCOUNT, environment: Mapping[str, str] = os.environ) -> Access:
    """Return the access of the pod's service account. Raises: BadCredentials outside of a pod."""
    host, port = environment.get("KUBERNETES_SERVICE_HOST", ""), environment.get("KUBERNETES_SERVICE_PORT", "443")
    if not host or not (folder / "token").exists():
        raise BadCredentials(
            "this is no pod of a cluster: there is no service account",
            hint="give a kubeconfig with --kubeconfig, or in KUBECONFIG",
        )
    address = f"[{host}]" if ":" in host else host
    try:
        security = ssl.create_default_context(cafile=str(folder / "ca.crt"))
    except (OSError, ssl.SSLError) as error:
        raise BadCredentials(f"the certificate {folder / 'ca.crt'} cannot be used: {error}") from None
    namespace = (folder / "namespace").read_text("utf-8").strip() if (folder / "namespace").exists() else "default"
    return Access(f"https://{address}:{port}", TokenFile(folder / "token"), security, namespace)


def from_kubeconfig(path: Path, context: str = "") -> Access:
    """Return the access that a context of a kubeconfig gives, by default its current one. Raises: BadCredentials."""
    return from_kubeconfigs((path,), context)


def from_kubeconfigs(paths: Sequence[Path], context: str = "") -> Access:
    """Return the access that a context of several kubeconfigs gives, by default the first current one that is named.

    Of each name the first entry counts, whole. Of several files those that do not exist are left out.
    Source: https://kubernetes.io/docs/concepts/configuration/organize-cluster-access-kubeconfig/#merging-kubeconfig-files
    Raises: BadCredentials.
    """
    if len(paths) > KUBECONFIGS_MAX:
        raise BadCredentials(f"{len(paths)} kubeconfigs are given, expected {KUBECONFIGS_MAX} at most")
    found = [path for path in paths if path.exists()] if len(paths) > 1 else list(paths)
    if not found:
        raise BadCredentials(f"none of the kubeconfigs {_listed(paths)} exists")
    return _Kubeconfig([(path, _read(path)) for path in found]).access(context)


def _read(path: Path) -> dict[str, Any]:
    try:
        top = loaded(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, ValueError) as error:
        raise BadCredentials(f"the kubeconfig {path} cannot be read: {error}") from None
    return top if isinstance(top, dict) else {}


def _listed(paths: Iterable[Path]) -> str:
    return os.pathsep.join(map(str, paths))


class _Entry(NamedTuple):
    """A context, cluster or user, and the file that it stands in."""

    path: Path
    fields: dict[str, Any]


class _Kubeconfig:
    """Reads kubeconfigs as one; relative paths in each start at its folder."""

    def __init__(self, files: Sequence[tuple[Path, dict[str, Any]]]) -> None:
        self._files = files
        self._shown = f"the kubeconfig {_listed(path for path, _ in files)}"

    def access(self, context: str) -> Access:
        current = (str(top.get("current-context") or "") for _, top in self._files)
        chosen = context or next(filter(None, current), "")
        if not chosen:
            raise BadCredentials(f"{self._shown} has no current-context", hint="name one with --context")
        told = self._named("contexts", "context", chosen).fields
        cluster = self._named("clusters", "cluster", str(told.get("cluster", "")))
        name = str(told.get("user") or "")
        user = self._named("users", "user", name) if name else _Entry(cluster.path, {})
        server = str(cluster.fields.get("server", ""))
        if not server.startswith(("https://", "http://")):
            raise BadCredentials(f"cluster '{told.get('cluster')}' of {cluster.path} has no server address: '{server}'")
        security = _security(cluster, user) if server.startswith("https") else None
        return Access(server.rstrip("/"), _tokens(user), security, str(told.get("namespace") or "default"))

    def _named(self, section: str, field: str, name: str) -> _Entry:
        for path, top in self._files:
            entries = top.get(section)
            for entry in entries if isinstance(entries, list) else ():
                if isinstance(entry, dict) and entry.get("name") == name:
                    found = entry.get(field)
                    return _Entry(path, found if isinstance(found, dict) else {})
        raise BadCredentials(f"{self._shown} has no {field} '{name}'")


def _tokens(entry: _Entry) -> Tokens:
    path, user = entry
    if user.get("token"):
        return FixedToken(str(user["token"]))
    if user.get("tokenFile"):
        return TokenFile(path.parent / str(user["tokenFile"]))
    plugin = user.get("exec")
    if not isinstance(plugin, dict):
        if "auth-provider" in user or "username" in user:
            raise BadCredentials(
                f"the kubeconfig {path} uses a login that Kubernetes has removed",
                hint="use a token, a client certificate or an exec plugin",
            )
        return FixedToken()
    version = str(plugin.get("apiVersion", ""))
    if version not in EXEC_VERSIONS:
        raise BadCredentials(
            f"the exec plugin of {path} speaks '{version}'", hint=f"expected: {' or '.join(EXEC_VERSIONS)}"
        )
    command = [str(plugin.get("command", "")), *map(str, plugin.get("args") or ())]
    if os.sep in command[0]:
        command[0] = str(path.parent / command[0])
    env = {str(one["name"]): str(one["value"]) for one in plugin.get("env") or ()}
    return PluginToken(command, env, version, str(plugin.get("installHint", "")))


def _security(cluster: _Entry, user: _Entry) -> ssl.SSLContext:
    authority = _bytes(cluster, "certificate-authority")
    try:
        found = ssl.create_default_context(cadata=authority.decode("ascii") if authority else None)
        if cluster.fields.get("insecure-skip-tls-verify"):
            found.check_hostname, found.verify_mode = False, ssl.CERT_NONE
        certificate, key = (_bytes(user, name) for name in ("client-certificate", "client-key"))
        if certificate and key:
            _load(found, certificate, key)
    except (ssl.SSLError, UnicodeDecodeError, ValueError) as error:
        files = _listed(sorted({cluster.path, user.path}))
        raise BadCredentials(f"a certificate of {files} cannot be used: {error}") from None
    return found


def _bytes(entry: _Entry, name: str) -> bytes:
    """Return what `NAME-data` holds, or the file that NAME names; empty where neither is given."""
    path, section = entry
    if section.get(f"{name}-data"):
        try:
            return base64.b64decode(str(section[f"{name}-data"]), validate=True)
        except ValueError:
            raise BadCredentials(f"{name}-data of {path} cannot be used: it is no base64") from None
    if not section.get(name):
        return b""
    try:
        return (path.parent / str(section[name])).read_bytes()
    except OSError as error:
        raise BadCredentials(f"{name} of {path} cannot be read: {error}") from None


def _load(security: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Load a client certificate; Python's ssl module reads it from files alone."""
    with tempfile.TemporaryDirectory() as folder:
        paths = Path(folder, "certificate"), Path(folder, "key")
        for path, content in zip(paths, (certificate, key), strict=True):
            path.touch(0o600)
            path.write_bytes(content)
        security.load_cert_chain(*paths)
