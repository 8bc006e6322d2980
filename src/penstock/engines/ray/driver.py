"""The one process that talks to Ray: it says each second what the cluster shows, and does what it is asked.

Apart from the server, which a call of Ray's could block or end. It ends when the server does (its standard input
ends); holders and agents live on. Started as `python -P -m penstock.engines.ray.driver OPTIONS`, JSON; lines of
JSON on standard input and output, as in `records.py`.
"""

import contextlib
import os
import queue
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import ray
from msgspec.structs import replace

from penstock import starts
from penstock.engines.ray import local_head
from penstock.engines.ray.driver_options import DriverOptions
from penstock.engines.ray.holder import HolderActor
from penstock.engines.ray.records import (
    Amounts,
    Ask,
    CapacityRequest,
    FoundAgent,
    Hold,
    Holder,
    RayNode,
    Release,
    Said,
    Seen,
    StartAgent,
    StopAgent,
    Trouble,
)

PERIOD_S = 1.0
ANSWER_S = 5.0
"""A holder that does not answer for so long counts as none that can be used."""
PROBE_S = 0.5
PROBES_AT_ONCE = 32
NODES_MAX = 2_000
TEXT_MAX = 500
NO_VISIBILITY = {"RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES": "1"}


class _Handle:
    """A holder as this driver knows it."""

    def __init__(self, actor: Any, now_s: float) -> None:
        self.actor, self.since_s = actor, now_s
        self.shown = Holder("asked", now_s)
        self.looking: Any = None
        self.looked_s = now_s
        self.working: Any = None


class Driver:
    """The connection to Ray, and the holders that are known."""

    def __init__(self, options: DriverOptions) -> None:
        self._options = options
        self._holders: dict[str, _Handle] = {}
        self._failed: dict[str, Holder] = {}
        self._asked: set[str] = set()
        """Ray nodes that were asked whether they have a holder."""
        self._probes = ThreadPoolExecutor(PROBES_AT_ONCE, thread_name_prefix="probe")

    def connect(self) -> None:
        """Raises: whatever Ray does when there is no cluster at the address."""
        address = self._options.address or local_head.address(Path(self._options.local))
        ray.init(
            address=address,
            namespace=self._options.namespace,
            log_to_driver=False,
            configure_logging=False,
            logging_level="ERROR",
        )
        self._gcs = ray._private.worker.global_worker.gcs_client  # public where Ray has none: its own Train reads it
        self._kind = ray.remote(HolderActor)

    # What the cluster shows.

    def seen(self) -> Seen:
        """Return the cluster now. Calls of holders that take longer are taken up next time."""
        now_s = time.monotonic()
        raw = ray.nodes()[:NODES_MAX]
        free = ray._private.state.available_resources_per_node()
        draining = self._draining()
        alive = {str(one["NodeID"]) for one in raw if one["Alive"]}
        answers = self._answering([one for one in raw if one["Alive"]])
        for node in alive - self._asked:
            self._find(node, now_s)
        for node in [node for node in self._holders if node not in alive]:
            del self._holders[node]  # a pinned actor dies with its node
        for node, handle in list(self._holders.items()):
            self._look(node, handle, now_s)
        nodes = tuple(self._node(one, free, draining, answers) for one in raw)
        return Seen(self._gcs.cluster_id.hex(), now_s, nodes)

    def _node(
        self, raw: Mapping[str, Any], free: Mapping[str, Any], draining: Mapping[str, int], answers: Mapping[str, bool]
    ) -> RayNode:
        name = str(raw["NodeID"])
        handle = self._holders.get(name)
        return RayNode(
            id=name,
            alive=bool(raw["Alive"]),
            host=str(raw["NodeManagerHostname"]),
            address=str(raw["NodeManagerAddress"]),
            total=_amounts(raw["Resources"]),
            free=_amounts(free.get(name, {})),
            reason=str(raw.get("DeathReasonMessage") or ""),
            draining_until_ms=draining.get(name, 0),
            answers=answers.get(name, True),
            holder=handle.shown if handle is not None else self._failed.get(name),
        )

    def _draining(self) -> Mapping[str, int]:
        ask = getattr(self._gcs, "get_draining_nodes", None)
        if ask is None:
            return {}
        return {str(node): int(until) or 1 for node, until in ask().items()}

    def _answering(self, nodes: Iterable[Mapping[str, Any]]) -> dict[str, bool]:
        """Return which raylets accept connections: Ray itself takes 15 s and more to call a killed one dead."""
        asked = {str(one["NodeID"]): (one["NodeManagerAddress"], one["NodeManagerPort"]) for one in nodes}
        return dict(zip(asked, self._probes.map(_accepts, asked.values()), strict=True))

    def _find(self, node: str, now_s: float) -> None:
        """Take up the holder that a former driver made."""
        self._asked.add(node)
        with contextlib.suppress(ValueError):  # there is none of that name
            self._holders[node] = _Handle(ray.get_actor(_name(node)), now_s)

    def _look(self, node: str, handle: _Handle, now_s: float) -> None:
        if handle.working is not None and ray.wait([handle.working], timeout=0)[0]:
            problem = _result(handle.working)
            handle.working = handle.looking = None  # what it saw meanwhile is no news
            if problem:
                self._failed[node] = Holder("failed", now_s, text=str(problem)[:TEXT_MAX])
                handle.shown = self._failed[node]
            else:
                handle.shown = replace(handle.shown, busy=True)  # until it has looked again
        if handle.looking is None:
            handle.looking, handle.looked_s = handle.actor.look.remote(), now_s
        if ray.wait([handle.looking], timeout=0)[0]:
            found = _result(handle.looking)
            handle.looking = None
            if isinstance(found, str):
                del self._holders[node]
                self._failed[node] = Holder("failed", now_s, text=found[:TEXT_MAX])
                return
            if handle.shown.state == "failed" and now_s - handle.shown.since_s < ANSWER_S:
                return
            held = msgspec.convert(found["held"], Amounts)
            agents = tuple(msgspec.convert(one, FoundAgent) for one in found["agents"])
            busy = handle.working is not None
            handle.shown = Holder("ready", now_s, "", held, tuple(found["devices"]), agents, busy)
        elif handle.shown.state == "ready" and now_s - handle.looked_s > ANSWER_S:
            handle.shown = replace(handle.shown, busy=True)

    # What it is asked to do.

    def do(self, ask: Ask) -> None:
        now_s = time.monotonic()
        if isinstance(ask, CapacityRequest):
            self._wish(ask.bundles)
            return
        handle = self._holders.get(ask.node)
        if isinstance(ask, Hold):
            if handle is None:
                self._hold(ask, now_s)
        elif handle is None:
            return
        elif isinstance(ask, Release):
            self._release(ask.node, handle)
        elif handle.working is None:
            if isinstance(ask, StopAgent):
                handle.working = handle.actor.stop.remote(ask.name)
            else:
                record = {"node": ask.node, "amounts": msgspec.to_builtins(ask.amounts), "devices": list(ask.devices)}
                handle.working = handle.actor.start.remote(ask.name, record, ask.bundle, self._words(ask))
            handle.shown = replace(handle.shown, busy=True)

    def _words(self, ask: StartAgent) -> list[str]:
        node = next(one for one in ray.nodes() if one["NodeID"] == ask.node)
        words = ["--cpus", str(ask.amounts.cpus), "--memory", str(ask.amounts.memory_bytes)]
        words += ["--devices", ",".join(map(str, ask.devices)), "--address", str(node["NodeManagerAddress"])]
        return [*words, "--shared", self._options.shared] if self._options.shared else words

    def _hold(self, ask: Hold, now_s: float) -> None:
        self._failed.pop(ask.node, None)
        pinned = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(ask.node, soft=False)
        try:
            actor = self._kind.options(
                name=_name(ask.node),
                lifetime="detached",
                get_if_exists=True,
                max_restarts=-1,
                max_concurrency=2,
                num_cpus=ask.amounts.cpus,
                num_gpus=ask.amounts.gpus,
                memory=ask.amounts.memory_bytes,
                scheduling_strategy=pinned,
                runtime_env={"env_vars": NO_VISIBILITY},
            ).remote(self._options.base, msgspec.to_builtins(ask.amounts))
        except ValueError as error:  # the node has gone
            self._failed[ask.node] = Holder("failed", now_s, text=str(error)[:TEXT_MAX])
            return
        self._holders[ask.node] = _Handle(actor, now_s)

    def _release(self, node: str, handle: _Handle) -> None:
        """End the agent of a Ray node, then its holder."""
        del self._holders[node]
        own = [agent.name for agent in handle.shown.agents if agent.node == node and agent.lives]
        with contextlib.suppress(ray.exceptions.RayError):
            for name in own:
                ray.get(handle.actor.stop.remote(name), timeout=30)
        ray.kill(handle.actor, no_restart=True)

    def _wish(self, bundles: Iterable[Amounts]) -> None:
        from ray.autoscaler.sdk import request_resources

        wanted = [
            {
                "CPU": one.cpus,
                **({"GPU": one.gpus} if one.gpus else {}),
                **({"memory": one.memory_bytes} if one.memory_bytes else {}),
            }
            for one in bundles
        ]
        request_resources(bundles=wanted)

    def _any_holder(self, node: str) -> Any:
        """Return the holder of a Ray node; where there is none, as after a new head, one that holds nothing."""
        try:
            return ray.get_actor(_name(node))
        except ValueError:
            pinned = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(node, soft=False)
            made = self._kind.options(num_cpus=0, scheduling_strategy=pinned)
            return made.remote(self._options.base, msgspec.to_builtins(Amounts()))

    def end_all(self) -> Iterator[str]:
        """End all holders of this server, their agents, and a local cluster; yield the names of agents that lived."""
        for node in [str(one["NodeID"]) for one in ray.nodes() if one["Alive"]]:
            with contextlib.suppress(ValueError, ray.exceptions.RayError):
                actor = self._any_holder(node)
                found = ray.get(actor.look.remote(), timeout=20)
                for agent in found["agents"]:
                    if agent["lives"]:
                        yield agent["name"]
                    ray.get(actor.stop.remote(agent["name"]), timeout=30)
                ray.kill(actor, no_restart=True)
        if not self._options.address:
            ray.shutdown()
            local_head.end(Path(self._options.local))


def _name(node: str) -> str:
    return f"penstock-{node}"


def _result(ref: Any) -> Any:
    """Return what a call of a holder came to; its error as text."""
    try:
        return ray.get(ref)
    except ray.exceptions.RayError as error:
        return f"{type(error).__name__}: {str(error).strip().splitlines()[-1]}"


def _amounts(resources: Mapping[str, float]) -> Amounts:
    """Return whole amounts: a holder takes no part of a CPU or a device."""
    return Amounts(int(resources.get("CPU", 0)), int(resources.get("GPU", 0)), int(resources.get("memory", 0)))


def _accepts(place: tuple[str, int]) -> bool:
    """Return False where a raylet surely does not run; no answer in time says nothing."""
    try:
        socket.create_connection(place, timeout=PROBE_S).close()
    except ConnectionRefusedError:
        return False
    except OSError:
        return True
    return True


def _lines(asked: "queue.SimpleQueue[Ask | None]") -> None:
    decoder: msgspec.json.Decoder[Ask] = msgspec.json.Decoder(Ask)
    for line in sys.stdin.buffer:
        asked.put(decoder.decode(line))
    asked.put(None)


def main() -> None:
    options = msgspec.json.decode(sys.argv[1], type=DriverOptions)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # the server ignores it
    starts.settle()
    output = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # what Ray prints is no message

    def say(said: Said) -> None:
        output.write(msgspec.json.encode(said) + b"\n")

    asked: queue.SimpleQueue[Ask | None] = queue.SimpleQueue()
    try:
        driver = Driver(options)
        driver.connect()
        if options.end:
            for name in driver.end_all():
                output.write(name.encode() + b"\n")
            return
        threading.Thread(target=_lines, args=(asked,), daemon=True).start()
        while True:
            say(driver.seen())
            deadline = time.monotonic() + PERIOD_S
            while (left_s := deadline - time.monotonic()) > 0:
                with contextlib.suppress(queue.Empty):
                    ask = asked.get(timeout=left_s)
                    if ask is None:
                        os._exit(0)  # holders live on
                    driver.do(ask)
    except BrokenPipeError:
        os._exit(0)
    except Exception as error:  # noqa: BLE001 - the top of the loop: said, and begun anew by the server
        say(Trouble(f"{type(error).__name__}: {error}"[:TEXT_MAX]))
        os._exit(1)


if __name__ == "__main__":
    main()
