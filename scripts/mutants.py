"""Breaks the core's order, place and preempt one small change at a time, and asks the tests whether they notice.

`make mutants` runs it; CI does not. Each mutant is tried in a copy of the tree, against the tests that reach the
changed lines: the most particular ones first, as many as the time for one mutant allows. Libraries for this (mutmut,
cosmic-ray) draw no sample and bound no time for a mutant: here a survivor would cost many minutes.
"""

import argparse
import compileall
import hashlib
import json
import math
import multiprocessing
import os
import random
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import coverage
import hypothesis
import numpy as np  # noqa: F401 - loaded once, before the first fork
import pytest
from mutations import Mutant, mutants_of

ROOT = Path(__file__).resolve().parents[1]
CORE, TESTS = "src/penstock/core", "tests/core"
PACKAGES = ("order", "place", "preempt")
KEPT = ROOT / "build" / "mutants"
SCORE_MIN_PERCENT = 85
PYTEST = ["-q", "-x", "--tb=no", "-p", "no:cacheprovider", "--hypothesis-seed=0", "--hypothesis-profile=mutants"]
PYTEST += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # hypothesis is imported before the forks
HANG_FACTOR, HANG_MIN_S = 3, 15
"""A mutant that takes so many times as long as its tests need, and this beside, hangs: that counts as noticed."""
MEMORY_MAX_BYTES = 8 * 2**30
NOTICED = (pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.INTERRUPTED, pytest.ExitCode.USAGE_ERROR)


class Reached(NamedTuple):
    """One test: how long it takes, and the lines it runs, by file."""

    seconds: float
    lines: dict[str, list[int]]

    @property
    def breadth(self) -> float:
        """Low for a test of one thing that is quickly done: such a test goes first."""
        return math.sqrt(0.02 + self.seconds) * sum(map(len, self.lines.values()))


# Running tests.


class Chosen:
    """A plugin that runs the tests named, in this order, and can note how long each takes and what it reaches."""

    def __init__(self, names: Sequence[str] | None, measured: coverage.Coverage | None = None) -> None:
        self._place = None if names is None else {name: i for i, name in enumerate(names)}
        self._measured = measured
        self.seconds: dict[str, float] = {}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        place = self._place
        if place is not None:
            items[:] = sorted((i for i in items if i.nodeid in place), key=lambda i: place[i.nodeid])

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        began = time.monotonic()
        if self._measured is not None:
            self._measured.switch_context(item.nodeid)
        yield
        self.seconds[item.nodeid] = time.monotonic() - began


def _enter(tree: Path) -> None:
    os.chdir(tree)
    sys.path.insert(0, str(tree / "src"))
    phases = (hypothesis.Phase.explicit, hypothesis.Phase.generate)  # one failure is enough: nothing is shrunk
    hypothesis.settings.register_profile(
        "mutants", phases=phases, database=None, deadline=None, suppress_health_check=list(hypothesis.HealthCheck)
    )


def _try(tree: Path, names: Sequence[str]) -> None:
    """Run tests in a process of their own, quietly, and exit as pytest does."""
    _enter(tree)
    sys.dont_write_bytecode = True  # what is compiled from a mutant must not outlive it
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_MAX_BYTES, MEMORY_MAX_BYTES))
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)
    os.dup2(silent, 2)
    files = sorted({name.split("::")[0] for name in names})
    os._exit(pytest.main([*PYTEST, *files], plugins=[Chosen(names)]))


def _measure(tree: Path, file: str, answer: Path) -> None:
    """Run a test file and write down what each of its tests reaches; exit as pytest does."""
    _enter(tree)
    sources = [f"{CORE}/{package}" for package in PACKAGES]
    measured = coverage.Coverage(data_file=None, config_file=False, source=sources)
    chosen = Chosen(None, measured)
    measured.start()
    code = pytest.main([*PYTEST, file], plugins=[chosen])
    measured.stop()
    reached: dict[str, Reached] = {name: Reached(seconds, {}) for name, seconds in chosen.seconds.items()}
    data = measured.get_data()
    for path in data.measured_files():
        for line, names in data.contexts_by_lineno(path).items():
            for name in filter(None, names):
                reached[name].lines.setdefault(str(Path(path).relative_to(tree)), []).append(line)
    answer.write_text(json.dumps(reached))
    sys.exit(code)


def _fork(target: Callable[..., None], *args: object, seconds: float | None = None) -> int | None:
    """Return the exit code of a process that runs `target`, or None when it took longer than `seconds`."""
    process = multiprocessing.get_context("fork").Process(target=target, args=args)
    process.start()
    process.join(seconds)
    if process.exitcode is None:
        process.kill()
        process.join()
        return None
    return process.exitcode


def reached_by_tests(tree: Path) -> dict[str, Reached]:
    """Return what each test reaches. Kept in build/ by test file, as long as neither it nor the code changes."""
    found: dict[str, Reached] = {}
    tests = sorted((tree / TESTS).rglob("*.py"))
    helpers = [p for p in tests if not p.name.startswith("test_")]
    KEPT.mkdir(parents=True, exist_ok=True)
    for path in tests:
        if path not in helpers:
            kept = KEPT / f"{path.stem}-{_digest([path, *helpers, *sorted((tree / CORE).rglob('*.py'))])}.json"
            if not kept.exists():
                print(f"what {path.name} reaches", flush=True)
                if _fork(_measure, tree, str(path.relative_to(tree)), kept) != 0:
                    kept.unlink(missing_ok=True)
                    sys.exit(f"{path.name} fails as it is: nothing can be learned from mutants")
            found |= {name: Reached(*row) for name, row in json.loads(kept.read_text()).items()}
    return found


def _digest(paths: Sequence[Path]) -> str:
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in paths)).hexdigest()[:16]


# Mutants and tests together.


def tests_for(mutant: Mutant, reached: dict[str, Reached], seconds_max: float) -> tuple[list[str], float]:
    """Return the tests that may notice a mutant, the most particular first, and their time: `seconds_max` at most."""
    lines = set(mutant.lines)
    names = [name for name, test in reached.items() if not lines.isdisjoint(test.lines.get(mutant.path, ()))]
    if not names:  # it may run when the module is imported: whoever uses the module may notice
        names = [name for name, test in reached.items() if mutant.path in test.lines]
    chosen: list[str] = []
    seconds = 0.0
    for name in sorted(names, key=lambda name: (reached[name].breadth, name)):
        if seconds + reached[name].seconds <= seconds_max or not chosen:
            chosen.append(name)
            seconds += reached[name].seconds
    return chosen, seconds


def noticed(mutant: Mutant, tree: Path, names: Sequence[str], seconds: float) -> bool:
    """Return whether one of the tests fails, or does not end, with the mutant in the tree."""
    path = tree / mutant.path
    text = path.read_bytes()
    for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
        compiled.unlink()
    try:
        path.write_bytes(text[: mutant.start] + mutant.new.encode() + text[mutant.end :])
        code = _fork(_try, tree, names, seconds=HANG_MIN_S + HANG_FACTOR * seconds)
    finally:
        path.write_bytes(text)
    if code is not None and code >= 0 and code not in (pytest.ExitCode.OK, *NOTICED):
        sys.exit(f"pytest ended with {code} for {mutant}")
    return code != pytest.ExitCode.OK


def sample_of(size: str, seed: int) -> list[Mutant]:
    """Return the mutants to try, in random order: `size` of them, as many from each package, or `all`."""
    draw = random.Random(seed)
    chosen: list[Mutant] = []
    for package in PACKAGES:
        paths = sorted((ROOT / CORE / package).glob("*.py"))
        found = [m for path in paths for m in mutants_of(ROOT, str(path.relative_to(ROOT)))]
        print(f"{package}: {len(found)} mutants", flush=True)
        chosen += draw.sample(found, len(found) if size == "all" else min(len(found), -(-int(size) // len(PACKAGES))))
    return sorted(chosen, key=lambda _: draw.random())


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--sample", default="300", help="how many mutants, or `all`")
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--seconds", type=float, default=20, help="of tests for one mutant, at most")
    chosen = options.parse_args()
    mutants = sample_of(chosen.sample, chosen.seed)
    score = {package: [0, 0] for package in PACKAGES}
    survivors: list[str] = []
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        tree = Path(folder).resolve()
        for part in ("src", "tests", "scripts", "docs", "examples"):
            shutil.copytree(ROOT / part, tree / part)
        shutil.copy(ROOT / "pyproject.toml", tree)
        compileall.compile_dir(tree / "src", quiet=2)
        reached = reached_by_tests(tree)
        for i, mutant in enumerate(mutants):
            names, seconds = tests_for(mutant, reached, chosen.seconds)
            killed = bool(names) and noticed(mutant, tree, names, seconds)
            score[mutant.package][0] += killed
            score[mutant.package][1] += 1
            print(f"{i + 1}/{len(mutants)} {'noticed ' if killed else 'SURVIVED'} {mutant}", flush=True)
            if not killed:
                survivors.append(f"{mutant}   ({len(names)} tests reach it)")
    print("", "Not noticed:", *sorted(survivors), "", sep="\n")
    in_all = [sum(column) for column in zip(*score.values(), strict=True)]
    for package, (killed, tried) in (*score.items(), ("all", in_all)):
        print(f"{package}: {killed} of {tried} noticed, {100 * killed / max(1, tried):.1f} %")
    sys.exit(any(100 * killed < SCORE_MIN_PERCENT * tried for killed, tried in score.values()))


if __name__ == "__main__":
    main()
