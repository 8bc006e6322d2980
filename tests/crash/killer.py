"""Kills servers, workers and guardians at random moments, and says when it did what."""

import random
import time
from typing import Literal, get_args

import msgspec

from tests.crash.cluster import Cluster, kill, lives, until
from tests.crash.load import Load

What = Literal["server", "worker", "guardian", "worker+server", "guardian+server", "worker+guardian", "starting server"]
KINDS: tuple[What, ...] = get_args(What)
WEIGHTS = (6, 6, 6, 3, 3, 1, 2)
IN_FLIGHT_MIN = 50


class Kill(msgspec.Struct, frozen=True):
    """One kill point. `time_ms` is unix time, `node` is empty when no agent was hit, `pids` are of agents."""

    what: What
    time_ms: int
    node: str
    in_flight: int
    pids: tuple[int, ...] = ()


class Killer:
    """Makes `points` kill points; between two of them it only waits until there is a load again."""

    def __init__(self, cluster: Cluster, load: Load, *, seed: int) -> None:
        self._cluster, self._load = cluster, load
        self._chance = random.Random(seed)
        self.kills: list[Kill] = []
        self.server_faults: list[int] = []
        """Exit codes of servers that ended by themselves."""

    def run(self, points: int) -> None:
        while len(self.kills) < points:
            self._wait_for_load()
            self._point(self._chance.choices(KINDS, WEIGHTS)[0])

    def _wait_for_load(self) -> None:
        begin = time.monotonic()
        load = self._load
        until(lambda: load.seen_s > begin and load.in_flight >= IN_FLIGHT_MIN, "enough jobs in flight", 240)

    def _point(self, what: What) -> None:
        node = "" if what in ("server", "starting server") else self._chance.choice(self._cluster.nodes)
        victims = self._victims(what, node)
        time.sleep(self._chance.uniform(0, 0.12))  # the random moment: not a wait for anything
        in_flight = self._load.in_flight
        if in_flight < IN_FLIGHT_MIN:
            return
        for victim in victims:
            self._hit(victim)
        agents = tuple(pid for pid in victims if pid is not None)
        until(lambda: not any(lives(pid) for pid in agents), "the killed agents are dead")
        self._note(what, node, in_flight, agents)
        if what == "starting server":
            self._cluster.spawn_server()
            time.sleep(self._chance.uniform(0, 0.8))  # the random moment within the start
            self._hit(None)
            self._note(what, "", in_flight)
        if "server" in what:
            self._cluster.start()

    def _victims(self, what: What, node: str) -> list[int | None]:
        """Return process numbers in the order in which to kill; None stands for the server."""
        victims: list[int | None] = []
        if node:
            guardian, worker = self._cluster.settled(node)
            victims += [guardian] if "guardian" in what else []
            victims += [worker] if "worker" in what else []
            self._chance.shuffle(victims)
        if "server" in what:
            victims.insert(self._chance.randint(0, len(victims)), None)
        return victims

    def _hit(self, victim: int | None) -> None:
        if victim is not None:
            kill(victim)
            return
        server = self._cluster.server
        assert server is not None
        if server.poll() is not None:
            self.server_faults.append(server.returncode)
        self._cluster.kill_server()

    def _note(self, what: What, node: str, in_flight: int, pids: tuple[int, ...] = ()) -> None:
        self.kills.append(Kill(what, time.time_ns() // 1_000_000, node, in_flight, pids))
