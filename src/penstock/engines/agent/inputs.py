"""Inputs of jobs on a node: read by a program that runs as the job does, checked and kept by the agent.

The program (`fetchinputs.py`) has the job's environment and account, so an URL opens nothing that the job could not
open. What it sends the agent writes into files that the account may only read, with limits. A content is known by its
hash, or by what its source says of its version, asked with each job's own credentials, and is kept for the next job of
the account. A job gets a folder of links to its inputs.
"""

# root's: inputs are filled in the agent's own folder, before their account can pass them

import contextlib
import ctypes
import hashlib
import logging
import os
import secrets
import time
from collections.abc import Callable, Iterator, Sequence, Set
from pathlib import Path

from penstock import starts
from penstock.core.messages.orders import Inputs, StartReplica
from penstock.core.model.folder_snapshots import path_problem
from penstock.core.model.inputs import ENTRIES_MAX, digest, protocol_of, public_url
from penstock.core.model.jobs import Input
from penstock.core.model.quantities import format_size
from penstock.core.model.words import counted
from penstock.engines.agent.inputlink import Failed, InputLink, Remote, RemoteFile
from penstock.engines.agent.kept import KeptTrees, make_room
from penstock.engines.agent.preparation import Contribution, NotPrepared, Preparation, Preparer
from penstock.engines.processes.accounts import account_of
from penstock.engines.processes.paths import DataFolder

log = logging.getLogger(__name__)

FOLDER = "PENSTOCK_INPUTS_DIR"
CONTENT = "content"
"""In the kept folder of an input: the file or folder that its URL names."""
OWN_FAULT = 126
PAUSES_S = (1.0, 2.0, 4.0, 8.0, 16.0, 30.0)
"""Before each further try after a broken transfer; what came meanwhile starts them anew."""
CHANGES_MAX = 3
"""How often an input may change while it is fetched."""
SAY_EVERY_S = 10.0
PASSED = ("PATH", "LANG", "LC_ALL", "PYTHONPATH", "LD_LIBRARY_PATH")
"""Of the agent's environment, to the program that fetches: what it needs to start."""


class InputsPreparer(Preparer):
    """Fetches what jobs take from elsewhere, for one node."""

    def __init__(self, data: DataFolder, node: str) -> None:
        self._trees = KeptTrees(data.inputs(node), data.node(node) / "inputs.json", lasting=True)
        self._bounds: Inputs | None = None
        self._used: dict[str, list[Path]] = {}
        """The inputs in each folder of links."""

    def key(self, order: StartReplica) -> str:
        """Return what is prepared: these inputs, fetched with these credentials."""
        assert order.inputs is not None
        return digest(order.inputs, order.env)

    def prepare(self, job: Preparation) -> Contribution:
        """Fetch the inputs of a job. Raises: NotPrepared; Cancelled; OSError."""
        wanted = job.order.inputs
        assert wanted is not None
        self._bounds = wanted
        with contextlib.closing(_Fetch(self._trees, job, wanted, lambda: self._clean(0, job.living()))) as fetch:
            found = {one.path: fetch.path_of(one) for one in wanted.items}
        name = digest("view", sorted((path, str(at)) for path, at in found.items()))
        used = sorted({at.parent for at in found.values()})
        view, _ = self._trees.get(name, job.account, job.users, lambda root: _link_all(root, found))
        self._used[str(view)] = used
        return Contribution(env=((FOLDER, str(view)),), shown=(str(view.parent),))  # its view is links to there

    def used(self, made: Contribution, users: Sequence[str]) -> None:
        """Note that these replicas use what was fetched."""
        for _, view in made.env:
            for path in (Path(view), *self._used.get(view, ())):
                self._trees.mark(path, users)

    def left(self, living: Set[str]) -> None:
        """Remove what no replica uses any more, where it is old or too much."""
        if self._bounds is not None:
            self._clean(self._bounds.kept_bytes, living)

    def _clean(self, kept_bytes: int, living: Set[str]) -> None:
        bounds = self._bounds
        if bounds is not None:
            for path in self._trees.clean(living, kept_s=bounds.kept_ms / 1000, kept_bytes=kept_bytes):
                log.info("an input was removed", extra={"path": str(path)})


class _Fetch:
    """The inputs of one job."""

    def __init__(self, trees: KeptTrees, job: Preparation, wanted: Inputs, clean: Callable[[], None]) -> None:
        self._trees, self._job, self._wanted, self._clean = trees, job, wanted, clean
        self._link: InputLink | None = None

    def close(self) -> None:
        if self._link is not None:
            self._link.close()
            self._link = None

    def path_of(self, one: Input) -> Path:
        """Return where an input lies on the node, fetched if need be. Raises: NotPrepared; OSError."""
        name = digest("sha256", one.sha256) if one.sha256 else ""
        if name and (there := self._trees.known(name, self._job.account, self._job.users)) is not None:
            self._job.say(f"{one.path} is on this node already, by its sha256")
            return there / CONTENT
        for _ in range(CHANGES_MAX):
            remote = self._trying(one, lambda link: link.look(one.url))
            self._check(one, remote)
            named = name or _name_of(one, remote)
            with contextlib.suppress(_Changed):
                fill = _Filling(self, one, remote)
                path, known = self._trees.get(named, self._job.account, self._job.users, fill)
                if known:
                    size = sum(max(0, file.size) for file in remote.files)
                    self._job.say(f"{one.path} is on this node already: {format_size(size)}, unchanged at its source")
                return path / CONTENT
        raise self._own(one, f"changed {CHANGES_MAX} times while it was fetched")

    def _check(self, one: Input, remote: Remote) -> None:
        """Raises: NotPrepared where what an URL names is not what was asked for, or too much."""
        if one.sha256 and remote.folder:
            raise self._own(one, "is a folder, which has no sha256")
        size = sum(max(0, file.size) for file in remote.files)
        if size > self._wanted.most_bytes:
            most = format_size(self._wanted.most_bytes)
            raise self._own(one, f"has {format_size(size)}, an input may have {most} (settings.input_max_bytes)")
        if len(remote.files) > ENTRIES_MAX or (len(remote.files) != 1 and not remote.folder):
            raise self._own(one, f"has {len(remote.files)} files, expected at most {ENTRIES_MAX}")
        for file in remote.files:
            if remote.folder and (wrong := path_problem(file.name)):
                raise self._own(one, f"has a file {file.name[:80]!r}: {wrong}")

    def _own(self, one: Input, why: str) -> NotPrepared:
        return NotPrepared(f"input {one.path} ({public_url(one.url)}) {why}", OWN_FAULT)

    def _trying(self, one: Input, ask: Callable[[InputLink], Remote]) -> Remote:
        tries = 0
        while True:
            try:
                return ask(self.link())
            except Failed as failed:
                self.after(one, failed, tries, "")
            tries += 1

    def after(self, one: Input, failed: Failed, tries: int, done: str) -> None:
        """Wait before a further try. Raises: NotPrepared where there is none."""
        self.close()
        if not failed.passing:
            raise self._own(one, f"cannot be fetched: {failed.message}")
        if tries >= len(PAUSES_S):
            text = f"input {one.path} ({public_url(one.url)}) cannot be fetched now, after {tries + 1} tries"
            raise NotPrepared(f"{text}: {failed.message}")
        self._job.say(f"{one.path}{done}: {failed.message}; next try in {PAUSES_S[tries]:g} s")
        until_s = time.monotonic() + PAUSES_S[tries]
        while (left_s := until_s - time.monotonic()) > 0:
            self._job.check()
            time.sleep(min(0.2, left_s))

    def link(self) -> InputLink:
        """Return the program, which is started where it does not run."""
        if self._link is None:
            job = self._job
            account = account_of(job.account) if job.account else None
            first = {
                "account": [account.name, account.gid, account.uid] if account is not None else None,
                "env": job.environment(),
                "protocols": sorted({protocol_of(one.url) for one in self._wanted.items}),
                "hosts": self._wanted.hosts,
            }
            self._link = InputLink(self._run, first, job.check)
        return self._link

    def _run(self, socket_name: str) -> object:
        words = starts.python("penstock.engines.agent.fetchinputs", socket_name)
        env = {name: os.environ[name] for name in PASSED if name in os.environ}
        return self._job.run(words, env={**env, "HOME": "/nonexistent"}, account="", visible=False).ended

    def fill(self, one: Input, remote: Remote, root: Path) -> int:
        """Fetch an input into a folder; return its size (bytes). Raises: NotPrepared; OSError; _Changed."""
        make_room(sum(max(0, file.size) for file in remote.files), root, "an input", self._clean)
        progress = _Progress(one, remote, self._job.say)
        content = root / CONTENT
        if remote.folder:
            content.mkdir(0o700)
        for file in remote.files:
            path = content / file.name if file.name else content
            path.parent.mkdir(0o700, parents=True, exist_ok=True)
            self._file(one, file, path, progress)
        if self._trying(one, lambda link: link.look(one.url)) != remote:
            raise _Changed
        _close_to_writing(root)
        _sync(root)
        progress.end()
        return progress.came

    def _file(self, one: Input, file: RemoteFile, path: Path, progress: "_Progress") -> None:
        hashed = hashlib.sha256()
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(path, flags, 0o600), "wb") as out:
            for data in self._bytes(one, file, progress):
                out.write(data)
                hashed.update(data)
        if one.sha256 and hashed.hexdigest() != one.sha256:
            raise self._own(one, f"has sha256 {hashed.hexdigest()}, expected {one.sha256}")
        progress.sha256 = hashed.hexdigest()

    def _bytes(self, one: Input, file: RemoteFile, progress: "_Progress") -> Iterator[bytes]:
        """Yield the content of a file; a broken transfer goes on where it was."""
        at = tries = 0
        while True:
            try:
                for data in self.link().read(one.url, file, at):
                    at, tries = at + len(data), 0
                    progress.add(len(data))
                    if progress.came > self._wanted.most_bytes or at > file.size >= 0:
                        raise self._own(one, f"sends more than {format_size(min(at, self._wanted.most_bytes))}")
                    yield data
                if at >= file.size:
                    return
                failed = Failed(f"ended after {at} of {file.size} bytes", passing=True)
            except Failed as error:
                failed = error
            if failed.passing and failed.message.startswith("it was changed"):
                raise _Changed
            self.after(one, failed, tries, f" after {format_size(progress.came)}")
            tries += 1


class _Changed(Exception):
    """An input became another while it was fetched."""


class _Filling:
    """Fills the folder of an input, as `KeptTrees` calls for it."""

    def __init__(self, fetch: _Fetch, one: Input, remote: Remote) -> None:
        self._fetch, self._one, self._remote = fetch, one, remote

    def __call__(self, root: Path) -> int:
        return self._fetch.fill(self._one, self._remote, root)


class _Progress:
    """Says how far an input is."""

    def __init__(self, one: Input, remote: Remote, say: Callable[[str], None]) -> None:
        self._one, self._say = one, say
        self._total = sum(file.size for file in remote.files) if all(file.size >= 0 for file in remote.files) else -1
        self._files = len(remote.files) if remote.folder else 0
        self.came, self.sha256 = 0, ""
        self._begun_s = self._said_s = time.monotonic()
        of = f": {format_size(self._total)}" if self._total >= 0 else ""
        of += f" in {counted(self._files, 'file')}" if self._files else ""
        say(f"fetching {one.path}{of} from {public_url(one.url)}")

    def add(self, size: int) -> None:
        self.came += size
        now_s = time.monotonic()
        if now_s - self._said_s >= SAY_EVERY_S:
            self._said_s = now_s
            part = f" of {format_size(self._total)} ({self.came * 100 // max(1, self._total)} %)" * (self._total >= 0)
            self._say(f"fetching {self._one.path}: {format_size(self.came)}{part}, {self._rate(now_s)}")

    def end(self) -> None:
        now_s = time.monotonic()
        of = f", sha256 {self.sha256}" if not self._files else ""
        took_s = now_s - self._begun_s
        self._say(f"fetched {self._one.path}: {format_size(self.came)} in {took_s:.1f} s, {self._rate(now_s)}{of}")

    def _rate(self, now_s: float) -> str:
        return f"{format_size(int(self.came / max(1e-3, now_s - self._begun_s)))}/s"


def _name_of(one: Input, remote: Remote) -> str:
    """Return the name of a content whose source says its version; of others one that is not used twice."""
    if all(file.version for file in remote.files):
        return digest("version", one.url, remote.folder, [tuple(file) for file in remote.files])
    return digest("once", secrets.token_hex(16))


def _close_to_writing(root: Path) -> None:
    for where, _, names in os.walk(root, topdown=False):
        for name in names:
            Path(where, name).chmod(0o444)
        Path(where).chmod(0o555)


def _sync(root: Path) -> None:
    """Have everything on the file system of a folder on its disk. Raises: OSError."""
    descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.syncfs(descriptor):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
    finally:
        os.close(descriptor)


def _link_all(root: Path, found: dict[str, Path]) -> int:
    """Make a folder of links to inputs, which lie beside it."""
    for path, at in found.items():
        link = root / path
        link.parent.mkdir(0o700, parents=True, exist_ok=True)
        link.symlink_to("../" * (path.count("/") + 1) + str(at.relative_to(at.parent.parent)))
    for where, _, _ in os.walk(root, topdown=False):
        Path(where).chmod(0o555)
    return 0
