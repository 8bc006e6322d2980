"""A reverse proxy that serves a server under a path, as an operator's nginx does: the path is taken off."""

import contextlib
import http.client
import http.server
import threading
from collections.abc import Iterator
from urllib.parse import urlsplit


@contextlib.contextmanager
def behind_prefix(server: str, prefix: str) -> Iterator[str]:
    """Give the address under which a server is reached through the proxy."""
    target = urlsplit(server)

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.0"

        def pass_on(self) -> None:
            if not self.path.startswith(prefix + "/"):
                self.send_error(404)
                return
            link = http.client.HTTPConnection(target.hostname or "", target.port)
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            headers = {name: value for name, value in self.headers.items() if name.lower() != "connection"}
            link.request(self.command, self.path.removeprefix(prefix), body, headers)
            answer = link.getresponse()
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() != "transfer-encoding":
                    self.send_header(name, value)
            self.end_headers()
            with contextlib.suppress(OSError):
                while piece := answer.read1(65_536):
                    self.wfile.write(piece)
            link.close()

        do_GET = do_POST = pass_on  # noqa: N815 - the names that the library looks for

        def log_message(self, *_: object) -> None:
            pass

    proxy = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    proxy.daemon_threads = True
    thread = threading.Thread(target=proxy.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{proxy.server_address[1]}{prefix}"
    finally:
        proxy.shutdown()
        thread.join()
        proxy.server_close()
