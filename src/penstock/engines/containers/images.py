"""Images on a node: made ready before a replica starts, by which nothing needs a registry any more when it does.

A runtime is chosen once it has shown that it works here (`probe.py`). An image that is named is pulled once; replicas
start by the id that it had then.
"""

import logging
import os
import threading
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet

from msgspec.structs import replace

from penstock.core.messages.orders import StartReplica
from penstock.core.model.containers import ImageAsk, Mount, is_plain, is_reference, is_within
from penstock.engines.agent.preparation import Contribution, Done, NotPrepared, Preparation, Preparer
from penstock.engines.containers import keeper, start
from penstock.engines.containers.commands import BY_FOLDER, BY_NAME, KEPT, PARTS, Runtime, ways_to
from penstock.engines.containers.labels import keep, labels_of
from penstock.engines.containers.probe import TRIED, Ran, probed
from penstock.engines.containers.roots import remove_root
from penstock.engines.processes.accounts import account_of, may_switch, private
from penstock.engines.processes.paths import DataFolder
from penstock.engines.processes.spawn import base_environment
from penstock.privatefiles import PASSED

log = logging.getLogger(__name__)

JOBS_FAULT = 126
"""The exit of a job whose image there is not: no other node would mend it."""
NOT_THERE = (
    "manifest unknown", "not found", "unauthorized", "denied", "invalid reference", "repository name not known",
    "does not exist", "no such image",
)  # fmt: skip
SAID_MAX = 300
LISTED_MAX = 1_000
"""Entries of an image's folder, and of those on the way to what is mounted: each is shown by words of a command."""


class Images(Preparer):
    """Chooses a runtime, and makes sure that it has the image."""

    def __init__(self, data: DataFolder, node: str, say_anew: Callable[[], None] = lambda: None) -> None:
        self._data, self._node, self._say_anew = data, node, say_anew
        self._lock = threading.Lock()
        self._runtimes: dict[bool, list[Runtime]] = {}
        """By whether the job has an account of its own."""
        self._users: set[str] = set()
        """Replicas that may have a container."""

    def key(self, order: StartReplica) -> str:
        ask = _asked(order)
        return f"{ask.runtime} {ask.pull} {ask.name} {ask.among} {ask.folders} {_named(order)}"

    def prepare(self, job: Preparation) -> Contribution:
        ask = _asked(job.order)
        runtime = self._chosen(job, ask)
        mounts, files = _mounts(job, _named(job.order), ask.folders)
        if ask.is_folder:
            image = ask.name
            inside = _inside(job, image, [*(mount.target for mount in mounts), str(self._data.root)])
        else:
            image, inside = _image(job, runtime, ask), {}
        chosen = start.Chosen(self._node, runtime, image, mounts, files, ask.folders, inside)
        return Contribution(env=(("PENSTOCK_IMAGE", image),), container=start.encode(chosen).decode())

    def used(self, made: Contribution, users: Sequence[str]) -> None:
        with self._lock:
            self._users.update(users)

    def left(self, living: AbstractSet[str]) -> None:  # root's: plans lie in the node's folder
        """Remove what is recorded of containers whose keeper was killed; no process of one is left by then."""
        with self._lock:
            gone = self._users - living
            self._users -= gone
            runtimes = [one for found in self._runtimes.values() for one in found if one.kind in KEPT]
        folder = self._data.node(self._node) / "containers"
        left = [key for key in sorted(gone) if (folder / f"{key}.json").exists()]
        for runtime in runtimes[:1] if left else ():
            start.remove_records(runtime, [start.container_name(self._data, key) for key in left])
        for key in gone:
            remove_root(start.root_of(self._data, self._node, key))
        for key in left:
            for path in folder.glob(f"{key}.*"):
                if path.name.endswith(f".{PARTS}"):
                    keeper.taken_down(str(path))
                else:
                    path.unlink(missing_ok=True)

    def _chosen(self, job: Preparation, ask: ImageAsk) -> Runtime:
        """Return the runtime for an image. Raises: NotPrepared."""
        found = {one.kind: one for one in self._found(job)}
        kinds: Sequence[str] = (ask.runtime,) if ask.runtime else BY_FOLDER if ask.is_folder else BY_NAME
        kinds = [kind for kind in kinds if not ask.among or kind in ask.among]
        working = [found[kind] for kind in kinds if kind in found and not found[kind].problem]
        if working:
            return working[0]
        if not kinds:
            raise NotPrepared(f"the cluster allows none of the runtimes for it: {', '.join(ask.among)}", JOBS_FAULT)
        problems = [f"{kind}: {found[kind].problem}" for kind in kinds if kind in found]
        what = ask.runtime or f"runtime for {'folders' if ask.is_folder else 'images'}"
        raise NotPrepared("; ".join(problems) or f"node {self._node} has no {what}")

    def _found(self, job: Preparation) -> list[Runtime]:
        """Return the runtimes of this node, tried once for jobs with an account and once for those without."""
        with self._lock:
            own = bool(job.account)
            if own not in self._runtimes:
                private(self._data.containers(self._node).parent, PASSED)
                folder = private(self._data.containers(self._node), PASSED)

                def run(words: Sequence[str], *, agent: bool = False) -> Ran:
                    done = _as_agent(job, words, account="" if agent else job.account)
                    return Ran(done.ended.code, done.output.decode(errors="replace"))

                self._runtimes[own] = probed(run, folder, root=may_switch(), grouped=job.grouped)
                private(self._data.node(self._node) / "containers")
                labels = labels_of([one for found in self._runtimes.values() for one in found], TRIED)
                if keep(self._data.tried_runtimes(self._node), job.order.incarnation, labels):
                    self._say_anew()
                for one in self._runtimes[own]:
                    log.info("container runtime", extra={"kind": one.kind, "version": one.version, "no": one.problem})
            return self._runtimes[own]


def _as_agent(job: Preparation, words: Sequence[str], account: str = "") -> Done:
    """Run a command as the agent does, or as an account: nothing of the job's environment may reach it."""
    variables = {"USER": start.own_name(), **base_environment(os.environ, account_of(account) if account else None)}
    variables |= {name: os.environ[name] for name in ("XDG_RUNTIME_DIR",) if name in os.environ}
    return job.run(words, env=variables, account=account, visible=False, capture=True)


def _asked(order: StartReplica) -> ImageAsk:
    assert order.image is not None, "only orders with an image are prepared here"
    return order.image


def _named(order: StartReplica) -> tuple[Mount, ...]:
    """Return what a job names of the node to be seen inside: its mounts, and the folder to start in."""
    mounts = _asked(order).mounts
    if order.workdir and order.workdir not in order.shown:
        return (*mounts, Mount(order.workdir, order.workdir))
    return mounts


_REAL = """
for path in "$@"; do
    realpath -ez -- "$path" || exit 4
    if [ -d "$path" ]; then printf 'folder\\0'; else printf 'file\\0'; fi
done
"""
_INSIDE = """
image="$1"; shift
[ -d "$image" ] || exit 3
for way in "$@"; do
    printf '/%s\\0\\0\\0' "$way"
    find "$image$way" -mindepth 1 -maxdepth 1 -printf '%y\\0%P\\0%l\\0' 2>/dev/null || :
done
"""


def _mounts(
    job: Preparation, named: Sequence[Mount], folders: Sequence[str]
) -> tuple[tuple[Mount, ...], tuple[str, ...]]:
    """Return mounts with their sources where they lead for the job's account, and the targets that are files.

    A program of the account looks: at what that may see, and for as long as it takes. Raises: NotPrepared.
    """
    if not named:
        return (), ()
    words = ["/bin/sh", "-c", _REAL, "penstock", *(one.source for one in named)]
    done = _as_agent(job, words, account=job.account)
    said = done.output.decode(errors="surrogateescape").split("\0")
    if not done.ok or len(said) != 2 * len(named) + 1:
        raise NotPrepared(said[-1].strip().removeprefix("realpath: ")[:SAID_MAX], JOBS_FAULT)
    real = [os.path.realpath(folder) for folder in folders]  # root's: the administrator's
    found = []
    for one, source in zip(named, said[::2], strict=False):
        if not is_plain(source):
            raise NotPrepared(f"{one.source} leads to {source!r}, which no runtime can mount", JOBS_FAULT)
        if not is_within(source, real):
            among = f"expected one in {', '.join(folders)}" if folders else "jobs of this cluster mount no folders"
            leads = f"{one.source} leads to {source}" if source != one.source else one.source
            raise NotPrepared(f"{leads}, which no job may mount: {among}", JOBS_FAULT)
        found.append(replace(one, source=source))
    return tuple(found), tuple(one.target for one, kind in zip(named, said[1::2], strict=False) if kind == "file")


def _inside(job: Preparation, image: str, targets: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return what is in the folders of an image on the way to targets, as the job's account may list it.

    Raises: NotPrepared, where there is no such image or too much in it.
    """
    words = ["/bin/sh", "-c", _INSIDE, "penstock", image, *(way.rstrip("/") for way in ways_to(targets))]
    done = _as_agent(job, words, account=job.account)
    if done.ended.code == 3:
        raise NotPrepared(f"there is no folder {image} on this node", JOBS_FAULT)
    said = done.output.decode(errors="surrogateescape").split("\0")
    if not done.ok or len(said) > 3 * LISTED_MAX:
        raise NotPrepared(f"{image} has more than {LISTED_MAX} entries in its root", JOBS_FAULT)
    found: dict[str, tuple[str, ...]] = {}
    way = "/"
    for kind, name, target in zip(said[::3], said[1::3], said[2::3], strict=False):
        if kind.startswith("/"):
            way = kind.removeprefix("/") or "/"
            found[way] = ()
        elif not is_plain(f"/{name}"):
            raise NotPrepared(f"{image} has an entry {name[:80]!r}, which no runtime can show", JOBS_FAULT)
        else:
            found[way] += (f"{name}@{target}" if kind == "l" else name + "/" * (kind == "d"),)
    return found


def _image(job: Preparation, runtime: Runtime, ask: ImageAsk) -> str:
    """Return the id of an image, which is pulled where that is asked for. Raises: NotPrepared."""
    if not is_reference(ask.name):  # of a job that an earlier version accepted
        raise NotPrepared(f"{ask.name} is no image of a registry", JOBS_FAULT)
    base = [runtime.program, *runtime.options]
    inspect = [*base, "image", "inspect", "--format", "{{.Id}}", "--", ask.name]
    if ask.pull != "always":
        known = _as_agent(job, inspect)
        if known.ok:
            return known.output.decode().strip()
        if ask.pull == "never":
            raise NotPrepared(f"node {job.node} has no image {ask.name}, and pull is never", JOBS_FAULT)
    job.say(f"pulling {ask.name}")
    pulled = _as_agent(job, [*base, "pull", "--quiet", "--", ask.name])
    if not pulled.ok:
        lines = pulled.output.decode(errors="replace").strip().splitlines()
        said = lines[-1][-SAID_MAX:] if lines else f"exit {pulled.ended.code}"
        theirs = any(sign in said.lower() for sign in NOT_THERE)
        raise NotPrepared(f"{ask.name} cannot be pulled: {said}", JOBS_FAULT if theirs else None)
    known = _as_agent(job, inspect)
    if not known.ok:
        raise NotPrepared(f"{ask.name} was pulled, and {runtime.kind} does not know it")
    return known.output.decode().strip()
