"""How full a real cluster gets: GPU allocation on the openb trace, by placement policy and node order, and how fast.

Setting of FGD (Weng et al., USENIX ATC 2023): all pods of the trace plus pods drawn from it until 130 % of the GPUs
are asked for, in random order, one attempt each, none ends. A placer must take every pod that fits somewhere.
What requests are typical is learned from the pods seen so far in the same run: nothing is known beforehand.
Needs the trace: the environment variable PENSTOCK_TRACES names a folder with `openb/` (see its README.txt).
"""

import argparse
import csv
import gzip
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from bench.harness import result
from penstock.core.place import fragmentation

Ints = NDArray[np.int64]

ASKED_PCT = 130
SEEDS = range(42, 52)
QUICK_SEEDS = range(42, 44)
LEARN_FIRST = 32
"""The mix is learned anew after 32, 64, 128, ... pods: a new mix means new scores for all nodes."""
NO_FIT = fragmentation.NO_FIT
NOTED_FGD = {"default": 95.28, "gpuspec33": 94.55}
"""Allocation % of FGD at 130 %: default replicated with trace node order (published 95.39), gpuspec33 published."""


@dataclass(frozen=True)
class Node:
    cpu_milli: int
    memory_bytes: int
    gpus: int
    kind: int


@dataclass(frozen=True)
class Pod:
    cpu_milli: int
    memory_bytes: int
    gpus: int
    share_milli: int
    kinds: tuple[bool, ...]

    @property
    def gpu_milli(self) -> int:
        return self.gpus * self.share_milli


class Placer(Protocol):
    """A policy with a cluster of its own."""

    def place(self, pod: Pod) -> bool:
        """Place `pod` for good; False only when it fits on no node."""
        ...


# The trace.


def _rows(name: str) -> Iterator[dict[str, str]]:
    root = os.environ.get("PENSTOCK_TRACES")
    if not root:
        raise SystemExit("PENSTOCK_TRACES is not set: it names the folder that holds openb/")
    with gzip.open(Path(root) / "openb" / name, "rt", encoding="utf-8", newline="") as file:
        yield from csv.DictReader(file)


def load_nodes() -> tuple[list[Node], list[str]]:
    """Return the 1,213 GPU nodes in the order of the trace, and the names of the kinds of GPU."""
    rows = list(_rows("openb_node_list_gpu_node.csv.gz"))
    kinds = sorted({row["model"] for row in rows})
    return [
        Node(int(row["cpu_milli"]), int(row["memory_mib"]) << 20, int(row["gpu"]), kinds.index(row["model"]))
        for row in rows
    ], kinds


def load_pods(variant: str, kinds: Sequence[str]) -> list[Pod]:
    """Return the 8,152 pods of a variant of the trace, in its order."""
    found = []
    for row in _rows(f"openb_pod_list_{variant}.csv.gz"):
        gpus, wanted = int(row["num_gpu"]), row["gpu_spec"].split("|")
        mask = tuple(not gpus or not row["gpu_spec"] or kind in wanted for kind in kinds)
        share = int(row["gpu_milli"]) if gpus else 1000
        found.append(Pod(int(row["cpu_milli"]), int(row["memory_mib"]) << 20, gpus, share, mask))
    return found


def arrivals(pods: Sequence[Pod], capacity_milli: int, seed: int) -> list[Pod]:
    """Return all `pods` and more of them, drawn with replacement, until `ASKED_PCT` of the GPUs is asked; shuffled."""
    chance = random.Random(seed)
    found = list(pods)
    asked = sum(pod.gpu_milli for pod in found)
    while asked * 100 < ASKED_PCT * capacity_milli:
        found.append(chance.choice(pods))
        asked += found[-1].gpu_milli
    chance.shuffle(found)
    return found


def orders(nodes: Sequence[Node]) -> dict[str, list[Node]]:
    """Return the nodes in four orders: none of them may matter."""
    shuffled = list(nodes)
    random.Random(1).shuffle(shuffled)
    return {
        "trace": list(nodes),
        "shuffled": shuffled,
        "cpu_per_gpu": sorted(nodes, key=lambda n: n.cpu_milli / n.gpus),
        "gpus_desc": sorted(nodes, key=lambda n: -n.gpus),
    }


# Placers.


class ArrayPlacer:
    """Free capacity in arrays. Scores are kept by class of pods, taken again only where something was placed since."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        slots = range(max(node.gpus for node in nodes))
        self.cpu: Ints = np.array([n.cpu_milli for n in nodes], np.int64)
        self.memory: Ints = np.array([n.memory_bytes for n in nodes], np.int64)
        self.free: Ints = np.array([[1000 if s < n.gpus else -1 for s in slots] for n in nodes], np.int64)
        self.kind: Ints = np.array([n.kind for n in nodes], np.int64)
        self.changed: list[int] = []
        self._cache: dict[Pod, tuple[Ints, Ints]] = {}
        self._upto: dict[Pod, int] = {}

    def score(self, pod: Pod, which: Ints) -> tuple[Ints, Ints]:
        """Return of the nodes `which`: the score (lowest is best, `NO_FIT`) and the GPU for a fractional pod."""
        raise NotImplementedError

    def forget(self) -> None:
        """Drop all scores: the rule has changed."""
        self._cache.clear()

    def place(self, pod: Pod) -> bool:
        score, slot = self._scored(pod)
        node = int(score.argmin())
        if score[node] == NO_FIT:
            return False
        self.cpu[node] -= pod.cpu_milli
        self.memory[node] -= pod.memory_bytes
        if pod.share_milli < 1000:
            self.free[node, slot[node]] -= pod.share_milli
        elif pod.gpus:
            self.free[node, (self.free[node] == 1000).nonzero()[0][: pod.gpus]] = 0
        self.changed.append(node)
        return True

    def _scored(self, pod: Pod) -> tuple[Ints, Ints]:
        found = self._cache.get(pod)
        if found is None:
            found = self._cache[pod] = self.score(pod, np.arange(len(self.cpu)))
        elif self._upto[pod] < len(self.changed):
            which = np.array(sorted(set(self.changed[self._upto[pod] :])), np.int64)
            found[0][which], found[1][which] = self.score(pod, which)
        self._upto[pod] = len(self.changed)
        return found


class Fragmentation(ArrayPlacer):
    """The rule of `penstock.core.place.fragmentation`, with the mix of the pods it was shown so far."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        super().__init__(nodes)
        self._seen: Counter[Pod] = Counter()
        self._count, self._learn_at = 0, LEARN_FIRST
        self._mix = fragmentation.Mix.of(0, [])

    def place(self, pod: Pod) -> bool:
        if self._count == self._learn_at:
            self._learn_at *= 2
            rows = [(p.cpu_milli, p.memory_bytes, p.gpus, p.share_milli, p.kinds, w) for p, w in self._seen.items()]
            self._mix = fragmentation.Mix.of(len(pod.kinds), rows)
            self.forget()
        self._seen[pod] += 1
        self._count += 1
        return super().place(pod)

    def score(self, pod: Pod, which: Ints) -> tuple[Ints, Ints]:
        ask = fragmentation.Ask(pod.cpu_milli, pod.memory_bytes, pod.gpus, pod.share_milli, pod.kinds)
        return fragmentation.scores(
            self._mix, ask, self.cpu[which], self.memory[which], self.free[which], self.kind[which]
        )


class BestFit(ArrayPlacer):
    """Least CPU and GPU left, each as a share of the largest node's; the tightest GPU for a fraction."""

    def score(self, pod: Pod, which: Ints) -> tuple[Ints, Ints]:
        free = np.maximum(self.free[which], 0)
        left = (free.sum(axis=1) - pod.gpu_milli) * 16 + (self.cpu[which] - pod.cpu_milli)  # 128 cores, 8 GPUs
        fits = self.fits(pod, which)
        slot = np.where(free >= pod.share_milli, free, NO_FIT).argmin(axis=1)
        return np.where(fits, left, NO_FIT), slot

    def fits(self, pod: Pod, which: Ints) -> NDArray[np.bool_]:
        fits = (self.cpu[which] >= pod.cpu_milli) & (self.memory[which] >= pod.memory_bytes)
        if pod.gpus:
            fits &= np.array(pod.kinds)[self.kind[which]]
            fits &= (self.free[which] >= pod.share_milli).sum(axis=1) >= pod.gpus
        return fits


class FirstFit(BestFit):
    """The first node that fits, and its first GPU that does."""

    def score(self, pod: Pod, which: Ints) -> tuple[Ints, Ints]:
        slot = (self.free[which] >= pod.share_milli).argmax(axis=1)
        return np.where(self.fits(pod, which), 0, NO_FIT), slot


POLICIES: dict[str, Callable[[Sequence[Node]], Placer]] = {
    "fragmentation": Fragmentation,
    "best_fit": BestFit,
    "first_fit": FirstFit,
}


# Runs.


@dataclass(frozen=True)
class Run:
    """Allocation in % of all GPUs, at each whole % of them asked for (index), and CPU seconds."""

    curve: tuple[float, ...]
    cpu_s: float

    @property
    def final_pct(self) -> float:
        return self.curve[-1]


def run(placer: Placer, pods: Sequence[Pod], capacity_milli: int) -> Run:
    """Offer `pods` one after another."""
    begun = time.process_time()
    placed = asked = 0
    curve = [0.0]
    for pod in pods:
        asked += pod.gpu_milli
        if placer.place(pod):
            placed += pod.gpu_milli
        while len(curve) <= ASKED_PCT and asked * 100 >= len(curve) * capacity_milli:
            curve.append(100 * placed / capacity_milli)
    curve[-1] = 100 * placed / capacity_milli
    return Run(tuple(curve), time.process_time() - begun)


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


Runs = dict[tuple[str, str, str], list[Run]]
"""By variant, policy and node order; one run a seed."""


def measure(variants: Sequence[str], seeds: Sequence[int]) -> Runs:
    """Run every policy on every variant, node order and seed, saying on stderr how far it is."""
    nodes, kinds = load_nodes()
    capacity_milli = sum(node.gpus for node in nodes) * 1000
    found: Runs = {}
    for variant in variants:
        pods = load_pods(variant, kinds)
        for seed in seeds:
            coming = arrivals(pods, capacity_milli, seed)
            for order, ordered in orders(nodes).items():
                for policy, make in POLICIES.items():
                    one = run(make(ordered), coming, capacity_milli)
                    found.setdefault((variant, policy, order), []).append(one)
                    words = f"{variant} seed {seed}, {order}: {policy} {one.final_pct:.2f} % in {one.cpu_s:.1f} s"
                    print(f"\r{words:<78}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return found


def report(found: Runs, variants: Sequence[str]) -> None:
    """Print the result lines."""
    final = {key: mean([one.final_pct for one in runs]) for key, runs in found.items()}
    names = sorted({order for _, _, order in found})
    for variant in variants:
        worst = min(final[variant, "fragmentation", order] for order in names)
        limit, noted = {"default": (95.4, "FGD, replicated in trace order")}.get(variant, (94.55, "FGD, published"))
        reference = {"name": noted, "value": NOTED_FGD[variant]}
        result(f"openb_{variant}_alloc_pct", worst, "% of GPUs, worst node order", "higher", limit, reference)
        for policy, order in product(POLICIES, names):
            peer = max(("best_fit", "first_fit"), key=lambda p, v=variant, o=order: final[v, p, o])
            reference = {"name": f"{peer}, same run", "value": round(final[variant, peer, order], 3)}
            metric = f"openb_{variant}_alloc_pct.{policy}.{order}"
            bar = limit if policy == "fragmentation" else 0.0
            result(metric, final[variant, policy, order], "% of GPUs", "higher", bar, reference)
        early = {p: min(mean([r.curve[100] for r in found[variant, p, o]]) for o in names) for p in POLICIES}
        reference = {"name": "best_fit, same run", "value": round(early["best_fit"], 3)}
        unit = "% of GPUs when 100 % are asked for, worst node order"
        result(f"openb_{variant}_alloc_at_100_pct", early["fragmentation"], unit, "higher", 0.0, reference)
    slowest = {p: max(r.cpu_s for key, runs in found.items() if key[1] == p for r in runs) for p in POLICIES}
    reference = {"name": "best_fit, same run", "value": round(slowest["best_fit"], 2)}
    result("run_s", slowest["fragmentation"], "CPU s, slowest run", "lower", 5.0, reference)


# The picture.

WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 760, 420, 64, 34, 24, 52
FROM_X, FROM_Y, TO_Y = 80, 78, 98
LINES = (
    ("fragmentation", "trace", "Penstock (any node order)", "#0b6e99", ""),
    ("first_fit", "trace", "first fit, trace node order", "#b3541e", ""),
    ("best_fit", "trace", "best fit", "#6b6b6b", ""),
    ("first_fit", "cpu_per_gpu", "first fit, nodes by CPU per GPU", "#b3541e", "5 4"),
)


def picture(found: Runs) -> str:
    """Return an SVG of allocation against arrival on the default trace, mean over the seeds."""

    def x(asked: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (asked - FROM_X) / (ASKED_PCT - FROM_X)

    def y(allocated: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (max(allocated, FROM_Y) - FROM_Y) / (TO_Y - FROM_Y)

    parts = [f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>']
    for asked in range(FROM_X, ASKED_PCT + 1, 10):
        parts.append(f'<path d="M{x(asked):.1f} {TOP}V{HEIGHT - BOTTOM}" stroke="#e6e6e6"/>')
        parts.append(f'<text x="{x(asked):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{asked}</text>')
    for allocated in range(FROM_Y, TO_Y + 1, 4):
        parts.append(f'<path d="M{LEFT} {y(allocated):.1f}H{WIDTH - RIGHT}" stroke="#e6e6e6"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y(allocated) + 4:.1f}" text-anchor="end">{allocated}</text>')
    for number, (policy, order, words, colour, dash) in enumerate(LINES):
        runs = found["default", policy, order]
        curve = [mean([one.curve[a] for one in runs]) for a in range(ASKED_PCT + 1)]
        points = " ".join(f"{x(a):.1f},{y(curve[a]):.1f}" for a in range(FROM_X, ASKED_PCT + 1))
        dashes = f' stroke-dasharray="{dash}"' if dash else ""
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"{dashes}/>')
        top = HEIGHT - BOTTOM - 20 * (len(LINES) - number)
        parts.append(f'<path d="M{WIDTH - 350} {top}h28" stroke="{colour}" stroke-width="2"{dashes}/>')
        parts.append(f'<text x="{WIDTH - 314}" y="{top + 4}">{words}: {curve[-1]:.2f} %</text>')
    title = "GPUs allocated on the openb trace (1,213 nodes, 6,212 GPUs), % of all GPUs"
    parts.append(f'<text x="{LEFT}" y="20" font-weight="bold">{title}</text>')
    parts.append(f'<text x="{WIDTH - RIGHT}" y="{HEIGHT - 12}" text-anchor="end">GPUs asked for so far, %</text>')
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{title}"'
    return f'{head} font-family="sans-serif" font-size="12" fill="#222">' + "\n".join(parts) + "</svg>\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="two seeds instead of ten")
    parser.add_argument("--picture", type=Path, metavar="PATH", help="write the curves as an SVG")
    options = parser.parse_args()
    variants = ["default", "gpuspec33"]
    found = measure(variants, QUICK_SEEDS if options.quick else SEEDS)
    report(found, variants)
    if options.picture:
        options.picture.parent.mkdir(parents=True, exist_ok=True)
        options.picture.write_text(picture(found), encoding="utf-8")


if __name__ == "__main__":
    main()
