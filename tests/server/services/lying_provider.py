"""An identity provider that says what a test wants: what a certified one never would."""

import contextlib
import http.server
import json
import threading
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs

from joserfc import jwt
from joserfc.jwk import ECKey


class LyingProvider:
    """Its answers are attributes: set them, or replace the methods."""

    def __init__(self) -> None:
        self.issuer = ""
        self.key = self.published = ECKey.generate_key("P-256", {"kid": "first", "use": "sig"})
        self.header: dict[str, Any] = {"alg": "ES256", "kid": "first"}
        self.claims: dict[str, Any] = {}
        self.userinfo: dict[str, Any] = {}
        self.description: dict[str, Any] = {}
        self.redeemed: set[str] = set()
        self.asked: list[str] = []
        self.forms: list[dict[str, str]] = []
        self.secrets: list[str] = []
        self.answering = threading.Event()
        self.answering.set()

    def described(self) -> dict[str, Any]:
        ends = {"authorization_endpoint": "/auth", "token_endpoint": "/token", "jwks_uri": "/keys"}
        said = {name: self.issuer + path for name, path in (ends | {"userinfo_endpoint": "/me"}).items()}
        return {"issuer": self.issuer, **said, **self.description}

    def token(self) -> str:
        now = int(time.time())
        usual = {"iss": self.issuer, "aud": "penstock", "sub": "1", "iat": now, "exp": now + 60}
        claims = {**usual, "preferred_username": "ann", **self.claims}
        return jwt.encode(self.header, {name: value for name, value in claims.items() if value is not None}, self.key)

    def answer(self, path: str, form: dict[str, str]) -> tuple[int, Any]:
        if path == "/token":
            if form["code"] in self.redeemed:
                return 400, {"error": "invalid_grant"}
            self.redeemed.add(form["code"])
            return 200, {"access_token": "at", "token_type": "Bearer", "id_token": self.token()}
        if path == "/keys":
            return 200, {"keys": [self.published.as_dict(private=False)]}
        if path == "/me":
            return 200, self.userinfo
        return 200, self.described()


@contextlib.contextmanager
def lying() -> Iterator[LyingProvider]:
    """Give a provider that answers on loopback until the end."""
    made = LyingProvider()

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
            form = {name: values[0] for name, values in parse_qs(body).items()}
            made.asked.append(self.path)
            if form:
                made.forms.append(form)
                made.secrets.append(self.headers.get("Authorization", ""))
            made.answering.wait()
            status, said = made.answer(self.path, form)
            data = said if isinstance(said, bytes) else json.dumps(said).encode()
            with contextlib.suppress(OSError):  # the server does not wait for ever
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

        do_POST = do_GET  # noqa: N815

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made.issuer = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield made
    finally:
        made.answering.set()
        server.shutdown()
        thread.join()
        server.server_close()
