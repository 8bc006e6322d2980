"""Real receivers on loopback: HTTP that answers as it is asked to, and an SMTP server."""

import contextlib
import email
import email.policy
import json
import ssl
import threading
from collections.abc import Iterator
from email.message import EmailMessage
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from aiosmtpd.controller import Controller


class Got(NamedTuple):
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class HttpReceiver:
    """What came, and the statuses that are answered next (then 200)."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.got: list[Got] = []
        self.statuses: list[int] = []
        self.headers: dict[str, str] = {}
        self.hang = threading.Event()
        """Cleared: answers wait for it."""
        self.hang.set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook/secret-path"

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"


@contextlib.contextmanager
def http_receiver(tls: ssl.SSLContext | None = None) -> Iterator[HttpReceiver]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            made.got.append(Got(self.path, {k.lower(): v for k, v in self.headers.items()}, body))
            made.hang.wait(20)
            self.send_response(made.statuses.pop(0) if made.statuses else 200)
            for name, value in made.headers.items():
                self.send_header(name, value)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if tls is not None:
        http.socket = tls.wrap_socket(http.socket, server_side=True, do_handshake_on_connect=False)
    http.handle_error = lambda *_: None  # type: ignore[method-assign] - a client that refuses the certificate
    made = HttpReceiver(http.server_port)
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield made
    finally:
        made.hang.set()
        http.shutdown()
        thread.join()
        http.server_close()


class Mailbox:
    """An SMTP server's mails, and the answers that it gives next (then it takes them)."""

    def __init__(self) -> None:
        self.mails: list[EmailMessage] = []
        self.answers: list[str] = []
        self.port = 0

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:  # noqa: N802 - named by aiosmtpd
        if self.answers:
            return self.answers.pop(0)
        made = email.message_from_bytes(envelope.content, policy=email.policy.default)
        assert isinstance(made, EmailMessage)
        self.mails.append(made)
        return "250 taken"


class FreePort(Controller):
    """Listens on the port that the system gave it."""

    def _trigger_server(self) -> None:
        assert self.server is not None
        self.port = self.server.sockets[0].getsockname()[1]
        super()._trigger_server()


@contextlib.contextmanager
def smtp_receiver(**options: Any) -> Iterator[Mailbox]:
    mailbox = Mailbox()
    controller = FreePort(mailbox, hostname="127.0.0.1", port=0, **options)
    controller.start()
    try:
        mailbox.port = controller.port
        yield mailbox
    finally:
        controller.stop()
