"""Digests of what is decided, for changes that are to change no decision: run it before and after, and compare.

    python -m bench.plan_digests > before.json
    python -m bench.plan_digests --against before.json

A digest covers every plan and every event: of worlds of the fault simulator, of random crowded worlds, and, where
PENSTOCK_TRACES names the traces, of replays of real months under each order policy.
"""

import argparse
import hashlib
import json
import os
import sys
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from penstock.core.model.cluster import Queue
from penstock.core.model.ids import QueueName
from penstock.sim.replay.replay import replay
from penstock.sim.world.world import World
from penstock.testing.worlds import crowded
from penstock.traces import Trace, load
from penstock.traces.edit import with_nodes

FAULT_WORLDS, CROWDED = 24, 200
REPLAYED_JOBS = 3_000
POLICIES = ("fifo", "priority", "fair_share", "least_attained", "shortest_predicted")
TRACES = {"helios": ("helios/venus_2020-09_gpu_jobs.csv.gz", "70"), "philly": ("philly/philly_jobs.csv.gz", "")}
"""File, and a change of its nodes."""
_encode = msgspec.json.Encoder(enc_hook=str).encode


class Digest:
    """Takes values in order."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()

    def take(self, *values: Any) -> None:
        for value in values:
            self._hash.update(_encode(value))

    def __str__(self) -> str:
        return self._hash.hexdigest()[:24]


def of_fault_world(seed: int) -> str:
    """Return the digest of the whole log of a world of the fault simulator."""
    world, digest = World(seed), Digest()
    world.run()
    digest.take(*world.disk.records)
    return str(digest)


def of_crowded_worlds() -> str:
    """Return the digest of the logs, the next plans and the states of random worlds in which many rules bind."""
    digest = Digest()
    for seed in range(CROWDED):
        world = crowded(seed)
        digest.take(*world.records, world.cycle(), world.state.image())
    return str(digest)


def of_replay(trace: Trace, policy: str) -> str:
    """Return the digest of every plan and event of a replay whose jobs wait by `policy`."""
    digest = Digest()
    queues = tuple(replace(queue, policy=policy) for queue in trace.config.queues) or (
        Queue(QueueName("default"), policy=policy),
    )
    config = replace(trace.config, queues=queues)

    def on_plan(_: object, plan: object, now_ms: int) -> None:
        digest.take(plan, now_ms)

    replay(trace, config=config, on_plan=on_plan, on_records=lambda records: digest.take(*records))
    return str(digest)


def parts(folder: str | None) -> Iterator[tuple[str, Callable[[], str]]]:
    """Yield what is digested: its name, and how."""
    for seed in range(FAULT_WORLDS):
        yield f"fault world {seed}", partial(of_fault_world, seed)
    yield f"{CROWDED} crowded worlds", of_crowded_worlds
    if folder is None:
        print("PENSTOCK_TRACES is not set: no replays", file=sys.stderr)
        return
    for name, (file, nodes) in TRACES.items():
        trace = load(Path(folder, file))
        trace = replace(with_nodes(trace, nodes) if nodes else trace, jobs=trace.jobs[:REPLAYED_JOBS])
        for policy in POLICIES:
            yield f"{name}, {policy}", partial(of_replay, trace, policy)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", type=Path, help="digests of another version; 1 is returned where one differs")
    known = parser.parse_args().against
    digests: dict[str, str] = {}
    for number, (name, work) in zip(count(1), parts(os.environ.get("PENSTOCK_TRACES"))):
        print(f"\r{number} {name:40}", end="", file=sys.stderr, flush=True)
        digests[name] = work()
    print(file=sys.stderr)
    print(json.dumps(digests, indent=1))
    former = digests if known is None else json.loads(known.read_text(encoding="utf-8"))
    differing = [name for name in {**former, **digests} if former.get(name) != digests.get(name)]
    for name in differing:
        print(f"differs: {name}", file=sys.stderr)
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
