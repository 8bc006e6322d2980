"""A web server on this machine for tests of inputs: with ranges, and with transfers that break where a test says so."""

import hashlib
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class WebFiles:
    """Serves `files`, by path; notes what it is asked."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.asked: list[tuple[str, str, str]] = []
        """Path, range and authorization of each request."""
        self.statuses: list[int] = []
        """Of the next requests, in place of what they ask for."""
        self.breaks: list[int] = []
        """After how many bytes of its body each of the next answers ends; -1: after all of them."""
        self.moved: dict[str, str] = {}
        """Where other paths lead."""
        self.hold = False
        """Answers wait for `let`, once `reached` is set."""
        self.reached, self.let = threading.Event(), threading.Event()
        self.ranges = self.versions = True
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.answer(self)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def answer(self, to: BaseHTTPRequestHandler) -> None:
        path, asked = to.path.partition("?")[0], to.headers.get("Range", "")
        self.asked.append((path, asked, to.headers.get("Authorization", "")))
        if self.hold:
            self.reached.set()
            self.let.wait(60)
        status = self.statuses.pop(0) if self.statuses else 200
        if path in self.moved:
            to.send_response(302)
            to.send_header("Location", self.moved[path])
            to.end_headers()
            return
        if status != 200 or path not in self.files:
            to.send_error(status if status != 200 else 404)
            return
        whole = self.files[path]
        first = int(asked.removeprefix("bytes=").partition("-")[0]) if asked and self.ranges else 0
        most = self.breaks.pop(0) if self.breaks else -1  # before the answer begins: who asked may go on with the next
        to.send_response(206 if first else 200)
        if first:
            to.send_header("Content-Range", f"bytes {first}-{len(whole) - 1}/{len(whole)}")
        to.send_header("Content-Length", str(len(whole) - first))
        if self.versions:
            to.send_header("ETag", f'"{hashlib.md5(whole).hexdigest()}"')
        to.end_headers()
        body = whole[first:]
        to.wfile.write(body if most < 0 else body[:most])

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
