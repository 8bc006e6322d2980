"""Images of a private registry that gives out tokens: pulled with the agent's credentials, and not without.

A real registry of Debian (`docker-registry`, found by PATH) and a service of the test's own that signs tokens for who
has the password. The package starts a service with the machine, so it is not asked for: without it this is skipped.
"""

import base64
import contextlib
import datetime as dt
import json
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from unittest.mock import patch
from urllib.parse import parse_qs, urlsplit

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.x509.oid import NameOID

from penstock.core.model.containers import ImageAsk
from penstock.core.model.jobs import ExitInfo
from tests.engines.agent.fakeserver import FakeServer
from tests.engines.containers import images
from tests.engines.processes.test_containment import needs_groups
from tests.engines.slurm.cluster import free_ports
from tests.server.harness import until

pytestmark = [needs_groups, pytest.mark.root]

USER, PASSWORD = "robot", "not-in-any-log-7f3a"
REGISTRY = shutil.which("docker-registry")


def encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


class Issuer:
    """Signs tokens as the registry's documents say (distribution: `spec/auth/jwt.md`)."""

    def __init__(self, folder: Path) -> None:
        self._key = rsa.generate_private_key(65537, 2048)
        name, now = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test")]), dt.datetime.now(dt.UTC)
        made = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(self._key.public_key())
        made = made.serial_number(1).not_valid_before(now - dt.timedelta(1)).not_valid_after(now + dt.timedelta(1))
        made = made.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        self._certificate = made.sign(self._key, hashes.SHA256())
        self.file = folder / "issuer.pem"
        self.file.write_bytes(self._certificate.public_bytes(serialization.Encoding.PEM))
        self.refused = 0

    def token(self, scopes: list[str]) -> str:
        access = [
            {"type": kind, "name": name, "actions": actions.split(",")}
            for kind, name, actions in (one.split(":", 2) for one in scopes)
        ]
        now = int(time.time())
        claims = {"iss": "test", "sub": USER, "aud": "registry", "exp": now + 300, "nbf": now - 10, "iat": now}
        der = self._certificate.public_bytes(serialization.Encoding.DER)
        head = {"typ": "JWT", "alg": "RS256", "x5c": [base64.b64encode(der).decode()]}
        body = {**claims, "jti": str(time.monotonic_ns()), "access": access}
        signed = ".".join(encoded(json.dumps(part).encode()) for part in (head, body))
        return f"{signed}.{encoded(self._key.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256()))}"


@contextlib.contextmanager
def serving(issuer: Issuer, port: int) -> Iterator[None]:
    wanted = "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            right = self.headers.get("Authorization") == wanted
            issuer.refused += not right
            query = parse_qs(urlsplit(self.path).query)
            body = json.dumps({"token": issuer.token(query.get("scope", []))} if right else {}).encode()
            self.send_response(200 if right else 401)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    http = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield
    finally:
        http.shutdown()
        thread.join()
        http.server_close()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str, Issuer]]:
    """A home with credentials and the registry's address, the name of an image there, and who signs its tokens."""
    images.need("podman", "runc")
    if REGISTRY is None:
        pytest.skip("not installed: docker-registry")
    folder = tmp_path_factory.mktemp("registry")
    issuer, first = Issuer(folder), free_ports(2)
    address = f"127.0.0.1:{first}"
    token = {"realm": f"http://127.0.0.1:{first + 1}/token", "service": "registry", "issuer": "test"}
    config = {
        "version": "0.1", "log": {"level": "error"}, "storage": {"filesystem": {"rootdirectory": str(folder / "kept")}},
        "http": {"addr": address}, "auth": {"token": {**token, "rootcertbundle": str(issuer.file)}},
    }  # fmt: skip
    (folder / "registry.yml").write_text(json.dumps(config))
    home = folder / "home"
    (home / ".docker").mkdir(parents=True)
    (home / ".config/containers").mkdir(parents=True)
    (home / ".config/containers/registries.conf").write_text(f'[[registry]]\nlocation="{address}"\ninsecure=true\n')
    auth = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
    (home / ".docker/config.json").write_text(json.dumps({"auths": {address: {"auth": auth}}}))
    words = [REGISTRY, "serve", str(folder / "registry.yml")]
    with serving(issuer, first + 1), (folder / "registry.log").open("wb") as log:
        process = subprocess.Popen(words, stdout=log, stderr=log)
        name = f"{address}/lab/train:1"
        try:
            until(lambda: _answers(address), "the registry answers")
            variables = {**os.environ, "HOME": str(home)}
            for step in (["tag", images.imported(), name], ["push", "--quiet", name], ["rmi", name]):
                subprocess.run(["podman", *step], env=variables, check=True, capture_output=True)
            yield home, name, issuer
        finally:
            process.terminate()
            process.wait(20)
            subprocess.run(["podman", "rmi", "--force", "--ignore", name], capture_output=True)


def _answers(address: str) -> bool:
    with contextlib.closing(HTTPConnection(address, timeout=2)) as connection, contextlib.suppress(OSError):
        connection.request("GET", "/v2/")
        return connection.getresponse().status == 401
    return False


def ended(home: Path, name: str, root: Path) -> tuple[ExitInfo, str]:
    """Return how a replica of the image ended whose agent has this home, and what all files of its node say."""
    with patch.dict(os.environ, {"HOME": str(home)}):
        server = FakeServer(root / "data")
        try:
            server.agent()
            server.ready()
            key = server.start("/bin/echo", "there", image=ImageAsk(name, pull="always"))
            result = server.ended(key)
            texts = [path.read_text(errors="replace") for path in root.rglob("*") if path.is_file()]
            return result, "\n".join(texts)
        finally:
            server.close()


def test_an_image_of_a_private_registry_is_pulled_with_the_agents_credentials(place, tmp_path):
    home, name, _ = place
    result, said = ended(home, name, tmp_path)
    assert result == ExitInfo(0)
    assert PASSWORD not in said


def test_without_credentials_the_job_fails_and_says_why(place, tmp_path):
    home, name, issuer = place
    other = tmp_path / "home"
    shutil.copytree(home / ".config", other / ".config")
    before = issuer.refused
    result, _ = ended(other, name, tmp_path)
    assert result.code == 126
    assert result.note.startswith(f"its image cannot be used: {name} cannot be pulled: ")
    assert "authentication required" in result.note
    assert issuer.refused > before
