"""Servers that are none: they answer as one does, and note what they were sent."""

import http.server
import json
import os
import socket
import socketserver
import threading
from pathlib import Path


class _UnixServer(http.server.ThreadingHTTPServer):
    address_family = socket.AF_UNIX

    def server_bind(self) -> None:
        socketserver.TCPServer.server_bind(self)

    def get_request(self) -> tuple[socket.socket, tuple[str, int]]:
        return self.socket.accept()[0], ("unix", 0)


class FakeServer:
    """Answers as a server of a cluster does; `leader` is what it says where it does not lead itself.

    Args:
        port: where it listens; 0 takes a free one.
        unix: a socket to listen on instead.
    """

    def __init__(
        self, *, leads: bool = True, leader: str = "", silent: bool = False, port: int = 0, unix: Path | None = None
    ) -> None:
        self.leads, self.leader = leads, leader
        self.asked: list[tuple[str, str | None]] = []
        """Methods, and what was sent to prove who asks."""
        self._over = threading.Event()
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                outer.asked.append((self.command, self.headers["Authorization"]))
                if silent:
                    outer._over.wait(20)
                    return
                writes = self.command == "POST" and not outer.leads
                body = outer.problem() if writes else json.dumps({"status": "ok", "version": "1", "ok": True}).encode()
                self.send_response(503 if writes else 200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_GET = do_POST = answer  # noqa: N815 - the names that the library looks for

            def log_message(self, *_: object) -> None:
                pass

        kind = _UnixServer if unix else http.server.ThreadingHTTPServer
        self._server = kind(os.fspath(unix) if unix else ("127.0.0.1", port), Handler)  # type: ignore[arg-type]
        self._server.daemon_threads = True
        if unix is None:
            self.port = self._server.server_address[1]
            self.url = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def problem(self) -> bytes:
        return json.dumps({"title": "no", "status": 503, "code": "not_leader", "leader": self.leader}).encode()

    def close(self) -> None:
        self._over.set()
        self._server.shutdown()
        self._server.server_close()
