"""Images on a node: made ready before a replica starts, by which nothing needs a registry any more when it does.

A runtime is chosen once it has shown that it works here (`probe.py`). An image that is named is pulled once; replicas
start by the id that it had then.
"""

import logging
import os
import threading
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path

from penstock.core.messages.orders import StartReplica
from penstock.core.model.containers import ImageAsk, is_reference
from penstock.engines.agent.preparation import Contribution, Done, NotPrepared, Preparation, Preparer
from penstock.engines.containers import start
from penstock.engines.containers.commands import BY_FOLDER, BY_NAME, KEPT, Runtime
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
        return f"{ask.runtime} {ask.pull} {ask.name} {ask.mounts} {ask.among}"

    def prepare(self, job: Preparation) -> Contribution:
        ask = _asked(job.order)
        runtime = self._chosen(job, ask)
        image = _folder(ask) if ask.is_folder else _image(job, runtime, ask)
        chosen = start.Chosen(self._node, runtime, image, ask.mounts)
        return Contribution(env=(("PENSTOCK_IMAGE", image),), container=start.encode(chosen).decode())

    def used(self, made: Contribution, users: Sequence[str]) -> None:
        with self._lock:
            self._users.update(users)

    def left(self, living: AbstractSet[str]) -> None:
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


def _folder(ask: ImageAsk) -> str:
    if not Path(ask.name).is_dir():
        raise NotPrepared(f"there is no folder {ask.name} on this node", JOBS_FAULT)
    return ask.name


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
