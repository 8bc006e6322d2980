"""The program that reads the URLs of a job's inputs: as the job's account, with the job's environment.

Started by the agent as itself, with nothing of the job: it loads what it needs, which the account may not be able to
read, becomes the account for good, and only then looks at what the job says. Its argument is the name of the abstract
socket at which the agent listens. The agent asks, in lines of JSON; first, to be answered {"end": true}:

    {"account": [NAME, GROUP, NUMBER] or null, "env": {...}, "protocols": [...], "hosts": [PATTERN, ...]}
    {"look": URL}                                 what is there: {"files": [[NAME, SIZE, VERSION], ...]} some at a time,
                                                  then {"end": true, "folder": true or false}
    {"read": URL, "name": NAME, "offset": O, "version": V}       its bytes: {"data": LENGTH} and as many bytes, then
                                                  {"end": true}

or it is answered {"problem": TEXT, "passing": BOOL}. A NAME is relative to the URL, '' for a file. What comes from here
proves nothing to the agent: the job's own account may have put itself into this program.
"""

import contextlib
import importlib
import itertools
import json
import os
import socket
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from penstock.core.model.inputs import ENTRIES_MAX, PACKAGES, allowed_host, host_of, protocol_of, public_url
from penstock.engines.processes.procfs import REPLICA_MARK
from penstock.engines.processes.run_as import switch

LATER = ("encodings.idna", "concurrent.futures.thread", "fsspec.implementations.http")
"""Modules that are loaded when they are first used: the account may not be able to read them then."""
READ_BYTES = 2**20
RANGE_BYTES = 8 * 2**20
RANGES = 4
"""Parts of one file that are asked for at a time, where the protocol lets us."""
LISTED = 500
"""Files named in one line."""
CONNECT_S, READ_S = 30.0, 60.0
TEXT_MAX = 500
SECRET_MIN = 16
"""A value of the environment of this length or longer is not repeated in a message: it may be a key."""
WEB = ("http", "https")
VERSIONS = (
    *(
        "VersionId",
        "version_id",
        "generation",
        "ETag",
        "etag",
        "e_tag",
        "md5Hash",
        "content_md5",
        "Content-MD5",
        "Digest",
    ),
    *("crc32c", "checksum", "blob_id", "sha256", "sha", "LastModified", "last_modified", "Last-Modified", "updated"),
    *("mtime", "modify", "modified", "modificationTime", "ino"),
)
"""What file systems say of a file that changes with its content, best first."""
VERSIONS_USED = 4


class Refused(Exception):
    """Something that will not pass by itself; its text is for people."""


class Changed(Exception):
    """A file is another than a moment ago."""


class Listed(NamedTuple):
    name: str
    size: int
    """Of its content (bytes); -1 where that is not said."""
    version: str
    """Other where the content is other; '' where nothing says that."""


def main(words: Sequence[str]) -> int:
    """Answer the agent until it hangs up."""
    link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    link.connect(b"\0" + words[0].encode())
    with link, link.makefile("rb") as questions, link.makefile("wb") as answers:
        first = json.loads(questions.readline())
        become(first["account"], first["env"], first["protocols"])
        _say(answers, end=True)
        answers.flush()
        sources = Sources(first["hosts"])
        for line in questions:
            try:
                serve(sources, json.loads(line), answers)
                answers.flush()
            except (BrokenPipeError, ConnectionResetError):
                return 0
    return 0


def become(account: Sequence[Any] | None, environment: Mapping[str, str], protocols: Iterable[str]) -> None:
    """Load what reads these protocols, then turn into an account (None: stay), with its environment and settings."""
    import fsspec

    for module in LATER:
        importlib.import_module(module)
    for protocol in protocols:
        with contextlib.suppress(ImportError, ValueError):  # said once it is used
            fsspec.get_filesystem_class(protocol)
    if account is not None:
        name, group, number = account
        switch(name, gid=group, uid=number)
    mark = {REPLICA_MARK: os.environ[REPLICA_MARK]} if REPLICA_MARK in os.environ else {}  # of the box, for children
    os.environ.clear()
    os.environ.update({**environment, **mark})
    fsspec.config.set_conf_files(
        os.environ.get("FSSPEC_CONFIG_DIR") or os.path.expanduser("~/.config/fsspec"), fsspec.config.conf
    )
    fsspec.config.set_conf_env(fsspec.config.conf)


def serve(sources: "Sources", asked: Mapping[str, Any], answers: Any) -> None:
    """Answer one question. Raises: OSError when the agent is gone."""
    try:
        if "look" in asked:
            folder, files = sources.look(asked["look"])
            for first in range(0, len(files), LISTED):
                _say(answers, files=files[first : first + LISTED])
            _say(answers, end=True, folder=folder)
            return
        for data in sources.read(asked["read"], asked["name"], asked["offset"], asked["version"]):
            _say(answers, data=len(data))
            answers.write(data)
        _say(answers, end=True)
    except (BrokenPipeError, ConnectionResetError) as error:
        if error.filename is None and not _lives(answers):
            raise
        _say(answers, problem=_text(error), passing=True)
    except Exception as error:  # noqa: BLE001 - the top of a question: what it was is said
        _say(answers, **judged(error, asked.get("look") or asked.get("read") or ""))


def _say(answers: Any, **said: Any) -> None:
    answers.write(json.dumps(said).encode() + b"\n")


def _lives(answers: Any) -> bool:
    with contextlib.suppress(OSError):
        answers.flush()
        return True
    return False


def judged(error: BaseException, url: str) -> dict[str, Any]:
    """Return what is said of an error: whether it may pass by itself, and a text without secrets."""
    error = _root(error)
    if isinstance(error, Refused | Changed):
        return {"problem": str(error), "passing": isinstance(error, Changed)}
    if isinstance(error, ImportError):
        package = PACKAGES.get(protocol_of(url)) or "a package"
        text = f"needs the package {package} on the node, which is not installed there (pip install {package})"
        return {"problem": f"{text}: {_text(error)}", "passing": False}
    status = getattr(error, "status", None) or getattr(error, "code", None)
    if isinstance(status, int) and 400 <= status < 600:
        word = {401: "forbidden", 403: "forbidden", 404: "not found", 410: "not found"}.get(status, "refused")
        return {"problem": f"{word}: status {status}", "passing": status in (408, 425, 429) or status >= 500}
    if isinstance(error, FileNotFoundError):
        return {"problem": "not found", "passing": False}
    if isinstance(error, PermissionError):
        return {"problem": f"forbidden: {_text(error)}", "passing": False}
    if isinstance(error, IsADirectoryError | NotADirectoryError):
        return {"problem": _text(error), "passing": False}
    families = {one.__module__.partition(".")[0] for one in type(error).__mro__}
    names = {one.__name__ for one in type(error).__mro__}
    broken = (
        isinstance(error, OSError | TimeoutError | EOFError) or "aiohttp" in families or "Timeout" in "".join(names)
    )
    return {"problem": _text(error), "passing": broken or bool(names & {"HTTPClientError", "IncompleteRead"})}


def _root(error: BaseException) -> BaseException:
    """Return what an error comes from: a file system may say 'not found' of a machine that does not answer."""
    if isinstance(error, FileNotFoundError) and isinstance(error.__cause__, Exception):
        return error.__cause__
    return error


def _text(error: BaseException) -> str:
    text = (str(error).strip().splitlines() or [""])[0]
    for name, value in os.environ.items():
        if len(value) >= SECRET_MIN and not value.startswith("/"):
            text = text.replace(value, f"[{name}]")
    text = " ".join(public_url(word) if "://" in word else word for word in text.split())[:TEXT_MAX]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


class Sources:
    """What URLs name.

    Args:
        hosts: patterns of those that may be asked; none: all.
    """

    def __init__(self, hosts: Sequence[str]) -> None:
        self._hosts = tuple(hosts)
        self._known: dict[str, tuple[Any, str]] = {}

    def look(self, url: str) -> tuple[bool, list[Listed]]:
        """Return whether a folder is there, and its files by name, ascending; of a file itself."""
        if protocol_of(url) in WEB:
            return False, [self._look_at_page(url)]
        fs, path = self._of(url)
        fs.invalidate_cache()
        about = fs.info(path)
        if about["type"] != "directory":
            if url.endswith("/"):
                raise Refused("is a file, expected a folder, for the URL ends with '/'")
            return False, [_listed("", about)]
        found = fs.find(path, detail=True)
        if len(found) > ENTRIES_MAX:
            raise Refused(f"has {len(found)} files, expected at most {ENTRIES_MAX}: pack them into archives")
        root = path.rstrip("/")
        listed = [_listed(name[len(root) :].lstrip("/"), one) for name, one in found.items() if one["type"] == "file"]
        listed = sorted(one for one in listed if one.name)
        if not listed:
            raise FileNotFoundError(path)
        return True, listed

    def read(self, url: str, name: str, offset: int, version: str) -> Iterator[bytes]:
        """Yield the content of a file from an offset (bytes) on."""
        if protocol_of(url) in WEB:
            yield from self._page(url, offset, version)
            return
        fs, path = self._of(url)
        whole = f"{path.rstrip('/')}/{name}" if name else path
        if getattr(fs, "async_impl", False):
            yield from _ranges(fs, whole, offset)
            return
        with fs.open(whole, "rb", block_size=RANGE_BYTES) as file:
            file.seek(offset)
            while data := file.read(READ_BYTES):
                yield data

    def _of(self, url: str) -> tuple[Any, str]:
        if url not in self._known:
            import fsspec

            if protocol_of(url) != "file" and not allowed_host(host_of(url), self._hosts):
                raise Refused(f"{host_of(url)} is not a host that this cluster allows")
            options = {"get_client": self._client} if protocol_of(url) in WEB else {}
            self._known[url] = fsspec.core.url_to_fs(url, **options)
        return self._known[url]

    # Of the web: one request gives what is there and its content, and works where only that is signed.

    async def _client(self, **options: Any) -> Any:
        import aiohttp

        async def redirected(_session: Any, _context: Any, about: Any) -> None:
            to = str(about.url.join(about.url.__class__(about.response.headers.get("Location", ""))))
            if not allowed_host(host_of(to), self._hosts):
                raise Refused(f"leads to {host_of(to)}, which is not a host that this cluster allows")

        trace = aiohttp.TraceConfig()
        trace.on_request_redirect.append(redirected)
        options.setdefault("timeout", aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S, sock_read=READ_S))
        return aiohttp.ClientSession(**{"trust_env": True, **options}, trace_configs=[trace])

    @contextlib.contextmanager
    def _opened(self, url: str, headers: Mapping[str, str]) -> Iterator[Any]:
        from fsspec.asyn import sync
        from fsspec.implementations.http import HTTPStreamFile

        fs, _ = self._of(url)
        options = {**fs.kwargs}
        options["headers"] = {**options.get("headers", {}), "Accept-Encoding": "identity", **headers}
        session = sync(fs.loop, fs.set_session)
        file = HTTPStreamFile(fs, url, loop=fs.loop, session=session, **options)
        try:
            yield file
        finally:
            file.close()

    def _look_at_page(self, url: str) -> Listed:
        if url.split("?")[0].endswith("/"):
            raise Refused("ends with '/': of http and https only single files are fetched")
        with self._opened(url, {}) as file:
            return _page_listed(file.r.headers)

    def _page(self, url: str, offset: int, version: str) -> Iterator[bytes]:
        with self._opened(url, {"Range": f"bytes={offset}-"} if offset else {}) as file:
            if _page_listed(file.r.headers).version != version:
                raise Changed("it was changed while it was fetched")
            passed = offset if file.r.status == 206 else 0  # a server may not know ranges
            while data := file.read(READ_BYTES):
                if wanted := data[max(0, offset - passed) :]:
                    yield wanted
                passed += len(data)


def _ranges(fs: Any, path: str, offset: int) -> Iterator[bytes]:
    """Yield a file's content, several parts of it asked for at a time."""
    size = fs.info(path)["size"]
    starts = range(offset, size, RANGE_BYTES)
    with ThreadPoolExecutor(RANGES) as pool:
        asked = [pool.submit(fs.cat_file, path, start=at, end=min(at + RANGE_BYTES, size)) for at in starts[:RANGES]]
        more = iter(starts[RANGES:])
        while asked:
            yield bytes(asked.pop(0).result())
            for at in itertools.islice(more, 1):
                asked.append(pool.submit(fs.cat_file, path, start=at, end=min(at + RANGE_BYTES, size)))


def _listed(name: str, about: Mapping[str, Any]) -> Listed:
    known = {word: about[word] for word in VERSIONS if about.get(word) not in (None, "")}
    chosen = dict(itertools.islice(known.items(), VERSIONS_USED))
    size = about.get("size")
    return Listed(name, -1 if size is None else int(size), json.dumps(chosen, default=str) if chosen else "")


def _page_listed(headers: Mapping[str, str]) -> Listed:
    size = headers.get("Content-Range", "").rpartition("/")[2] or headers.get("Content-Length", "")
    return Listed("", int(size) if size.isdecimal() else -1, _listed("", headers).version)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
