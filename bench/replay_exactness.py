"""How exact replays are: settings whose figures are known, through the real core; and where one differs, why.

Helios Venus, 2020-09, on fewer nodes than it had. The figures are those of an independent event simulator
(`PUBLISHED`): jobs by arrival, by run time or by device time, and the first that does not fit blocks the others or is
passed by. Each setting is replayed

- on nodes whose devices nobody can tell apart: there the rule settles everything, and the figures have to be the same;
- on nodes with devices (`devices`): there the core takes another one of equally tight nodes;
- by a policy of the product or of a third party (`policy`), which knows lengths in steps.

The light simulator of bench/queue_sim.py, given the same choice and the same steps, then has to start every single job
at the same second. How much the choice matters at all shows when it is drawn by chance. Behind that, Tiresias: see
bench/replay_tiresias.py. Needs the traces: PENSTOCK_TRACES names their folder.
"""

import argparse
import os
import random
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from msgspec.structs import replace

from bench.harness import result
from bench.queue_sim import HELIOS, Job, Ordered, Places, Policy, Pool, fresh, load_helios
from bench.queue_sim import replay as replay_light
from bench.replay_tiresias import tiresias_part
from penstock.core.model import events as ev
from penstock.core.model.cluster import Settings
from penstock.core.model.jobs import GangAsk, GroupAsk
from penstock.core.model.jobs import Job as CoreJob
from penstock.core.model.resources import WHOLE_DEVICE_MILLI, DeviceAsk, ReplicaAsk, Resources
from penstock.core.order.extension import registry
from penstock.core.order.ranks import length_step
from penstock.sim.replay.replay import replay
from penstock.sim.replay.variants import variant
from penstock.traces import Trace, load
from penstock.traces.edit import with_nodes
from penstock.traces.loaders.shapes import equal_nodes

WIDTH, HALF = 8, 4
"""Devices of a node, and of each of its two sockets."""
OFF_LIMIT_PCT = 1.0
SEEDS = 8
NEVER_MS = 10**13
PLAIN = f"best_fit+no_preempt+starvation_after_ms={NEVER_MS}"
BY_NUMBER = "priority+wait_bonus_max=0+size_penalty_per_device=0"
"""Jobs in the order of a number that each of them brings: any order at all, to the second."""


class Rule(NamedTuple):
    """Who goes next: the lowest key, equal ones by arrival."""

    key: Callable[[Job], int]
    exact: str
    """Words that make the core order jobs just so."""
    policy: str = ""
    """How a user would say it, if otherwise: close, since lengths are then known in steps."""


RULES = {
    "fifo": Rule(lambda job: 0, "fifo"),
    "shortest": Rule(lambda job: job.service_s, BY_NUMBER, "ext:shortest+true"),
    "device_time": Rule(lambda job: job.service_s * job.devices, BY_NUMBER, "shortest_predicted+true"),
}
PUBLISHED = {
    (96, "fifo", "strict"): 20_659,
    (96, "fifo", "none"): 10_171,
    (96, "shortest", "strict"): 9_472,
    (96, "shortest", "none"): 9_577,
    (96, "device_time", "none"): 10_652,
    (90, "fifo", "strict"): 45_196,
    (90, "fifo", "none"): 14_989,
    (90, "shortest", "strict"): 10_800,
    (90, "shortest", "none"): 11_404,
    (90, "device_time", "none"): 11_604,
    (84, "fifo", "strict"): 99_609,
    (84, "fifo", "none"): 20_128,
    (84, "shortest", "strict"): 13_415,
    (84, "shortest", "none"): 14_561,
    (84, "device_time", "none"): 13_704,
}
"""Mean completion (s) by nodes, rule, and backfill: `strict`, the first that does not fit blocks the others."""


class Shortest:
    """The shortest run time first, by an oracle: what a third party would plug in."""

    name = "shortest"

    def order_key(self, job: CoreJob, now_ms: int, settings: Settings) -> tuple[int, ...]:
        return (job.predicted_ms,)


class Numbered(Pool):
    """A pool whose devices have numbers, with the core's choice among equally tight nodes.

    States of nodes come in the order of their devices, held before free, the first device first; equal states in the
    order of nodes. A job takes devices of one socket where it can, of the fuller one, the lowest first.
    """

    def __init__(self, nodes: int) -> None:
        super().__init__(nodes, WIDTH)
        self._open = [(1 << WIDTH) - 1] * nodes
        """Free devices of each node; the first device is the highest bit."""
        self._taken: dict[int, list[tuple[int, int]]] = {}

    def choose(self, among: int) -> int:
        return min(_numbers(among), key=lambda node: (self._open[node], node))

    def take(self, job: Job, places: Places) -> None:
        super().take(job, places)
        self._taken[job.id] = [(node, _devices(self._open[node], count)) for node, count in places]
        for node, devices in self._taken[job.id]:
            self._open[node] ^= devices

    def give(self, job: Job) -> None:
        super().give(job)
        for node, devices in self._taken.pop(job.id):
            self._open[node] |= devices


class Drawn(Pool):
    """A pool that draws one of equally tight nodes."""

    def __init__(self, nodes: int, seed: int) -> None:
        super().__init__(nodes, WIDTH)
        self._draw = random.Random(seed)

    def choose(self, among: int) -> int:
        return self._draw.choice(list(_numbers(among)))


def _numbers(mask: int) -> Iterable[int]:
    while mask:
        lowest = mask & -mask
        mask ^= lowest
        yield lowest.bit_length() - 1


def _devices(free: int, count: int) -> int:
    """Return which of the free devices of a node a job takes."""
    sockets = (range(HALF), range(HALF, WIDTH)) if count > 1 else (range(WIDTH), ())
    groups = [[i for i in socket if free >> (WIDTH - 1 - i) & 1] for socket in sockets]
    enough = [group for group in groups if len(group) >= count]
    chosen = min(enough, key=lambda group: (len(group), group)) if enough else [*groups[0], *groups[1]]
    return sum(1 << (WIDTH - 1 - i) for i in chosen[:count])


def alike(trace: Trace) -> Trace:
    """Return the trace on nodes of one device each, of which jobs take eighths: what is free there is a number."""

    def eighths(count: int) -> ReplicaAsk:
        return ReplicaAsk(Resources(), DeviceAsk(1, share_milli=WHOLE_DEVICE_MILLI * count // WIDTH))

    def gang(devices: int) -> GangAsk:
        whole, rest = divmod(devices, WIDTH)
        if not whole:
            return GangAsk(1, eighths(rest))
        return GangAsk(whole, eighths(WIDTH), others=(GroupAsk(1, eighths(rest)),) if rest else ())

    specs = {spec: replace(spec, ask=gang(spec.ask.device_total)) for spec in {job.spec for job in trace.jobs}}
    jobs = tuple(replace(job, spec=specs[job.spec]) for job in trace.jobs)
    return replace(trace, jobs=jobs, nodes=equal_nodes(len(trace.nodes), devices=1, model="V100"))


def numbered(trace: Trace, jobs: Sequence[Job], rule: Rule) -> Trace:
    """Return the trace with the rule's order written into the priorities of its jobs."""
    pairs = zip(trace.jobs, jobs, strict=True)
    return replace(trace, jobs=tuple(replace(j, spec=replace(j.spec, priority=-rule.key(of))) for j, of in pairs))


class Starts(NamedTuple):
    """When (s after submit) and where each job started, in the order of submit."""

    queue_s: list[int]
    places: list[Places]
    mean_jct_s: float

    def differ(self, other: "Starts") -> int:
        """Return how many jobs start at another time."""
        return sum(one != two for one, two in zip(self.queue_s, other.queue_s, strict=True))

    def parting(self, other: "Starts", jobs: Sequence[Job]) -> dict[str, object]:
        """Return the earliest start that went to other nodes than in `other`; empty where there is none."""
        for at_s, i in sorted((job.arrival_s + self.queue_s[i], i) for i, job in enumerate(jobs)):
            if sorted(self.places[i]) != sorted(other.places[i]):
                here, there = ([node for node, _ in starts.places[i]] for starts in (self, other))
                return {"job": jobs[i].id, "devices": jobs[i].devices, "at_s": at_s, "nodes": here, "published": there}
        return {}


def core(trace: Trace, words: str) -> Starts:
    """Return what the real core makes of the trace."""
    chosen = variant(words, trace.config)
    number = {spec.name: i for i, spec in enumerate(trace.nodes)}
    placed: list[Places] = [()] * len(trace.jobs)

    def note(records: Sequence[ev.Record]) -> None:
        for event in (record.event for record in records):
            if isinstance(event, ev.AttemptAllocated):
                placed[event.job_id - 1] = tuple((number[p.node], len(p.devices)) for p in event.places)

    ran = replay(trace, config=chosen.config, knows=chosen.knows, policies=registry([Shortest()]), on_records=note)
    mean_s = fmean(life.completion_ms for life in ran.lives) / 1000
    return Starts([life.wait_ms // 1000 for life in ran.lives], placed, mean_s)


def light(jobs: Sequence[Job], pool: Pool, policy: Policy) -> Starts:
    """Return what the light simulator makes of the jobs."""
    mine = fresh(jobs)
    replay_light(mine, pool, policy)
    return Starts([job.queue_s for job in mine], [job.places for job in mine], fmean(job.jct_s for job in mine))


def off_pct(value: float, published: float) -> float:
    return round(100 * (value / published - 1), 2) + 0.0  # no -0.0


class Setting(NamedTuple):
    """One setting whose figure is known."""

    nodes: int
    rule: str
    backfill: str

    @property
    def name(self) -> str:
        return f"helios_{self.nodes}_{self.rule}_{'blocks' if self.backfill == 'strict' else 'passes'}"

    def light_policy(self) -> Policy:
        return Ordered(RULES[self.rule].key, blocks=self.backfill == "strict")

    def stepped_policy(self) -> Policy:
        """Return the same as far as a policy goes that knows lengths in steps."""
        if self.rule != "device_time":
            return self.light_policy()
        return Ordered(lambda job: length_step(1000 * job.service_s * job.devices), blocks=self.backfill == "strict")


def measure(setting: Setting, trace: Trace, jobs: Sequence[Job]) -> tuple[float, int]:
    """Print the lines of one setting; return how far off the exact rule is (%), and how many starts are unexplained."""
    rule, published = RULES[setting.rule], PUBLISHED[setting]
    words = f"{PLAIN}+{setting.backfill}"
    work = numbered(trace, jobs, rule)
    theirs = light(jobs, Pool(setting.nodes), setting.light_policy())
    same = core(alike(work), f"{rule.exact}+{words}")
    off, strange = off_pct(same.mean_jct_s, published), same.differ(theirs)
    reference = {"name": "published", "value": published, "off_pct": off, "starts_that_differ": strange}
    result(f"{setting.name}_mean_jct_s", same.mean_jct_s, "s", "lower", None, reference)

    drawn = [light(jobs, Drawn(setting.nodes, seed), setting.light_policy()).mean_jct_s for seed in range(SEEDS)]
    runs = {"devices": (core(work, f"{rule.exact}+{words}"), setting.light_policy())}
    if rule.policy:
        runs["policy"] = (core(trace, f"{rule.policy}+{words}"), setting.stepped_policy())
    for kind, (ours, policy) in runs.items():
        explained = light(jobs, Numbered(setting.nodes), policy)
        differ = ours.differ(explained)
        strange += differ
        reference = {
            "name": "light simulator with the same choice of nodes",
            "value": round(explained.mean_jct_s, 3),
            "starts_that_differ": differ,
            "published": published,
            "off_pct": off_pct(ours.mean_jct_s, published),
            "off_pct_drawn": [off_pct(min(drawn), published), off_pct(max(drawn), published)],
            "parts_at": ours.parting(theirs, jobs),
        }
        result(f"{setting.name}_{kind}_mean_jct_s", ours.mean_jct_s, "s", "lower", None, reference)
    return abs(off), strange


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="96 nodes, first come first served; one workload of Tiresias"
    )
    given = parser.parse_args()
    jobs = load_helios()
    trace = load(Path(os.environ["PENSTOCK_TRACES"], HELIOS))
    settings = [Setting(*key) for key in PUBLISHED]
    if given.quick:
        settings = [setting for setting in settings if (setting.nodes, setting.rule) == (96, "fifo")]
    found = [measure(setting, with_nodes(trace, str(setting.nodes)), jobs) for setting in settings]
    tiresias_part(quick=given.quick)
    result("replay_off_pct", max(off for off, _ in found), "%", "lower", OFF_LIMIT_PCT)
    result("replay_unexplained_starts", sum(strange for _, strange in found), "starts", "lower", 0)


if __name__ == "__main__":
    main()
