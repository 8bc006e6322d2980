"""The web pages on a large cluster: when each is usable, how far behind changes are, and what they cost the server.

10,000 live and 100,000 finished jobs on 1,000 nodes of eight devices, in the log of a real server; a real node beside
them runs short jobs all the time, ten a second, so that things change. Pages are opened in Chromium, which has the last
CPU, and the server and who submits have the others: people have their browsers on other machines. The server's part is
its CPU time with the pages open less that of as long a time without, in turns.
"""

import argparse
import contextlib
import http.client
import json
import math
import multiprocessing
import os
import shutil
import statistics
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import psutil
from playwright.sync_api import Browser, BrowserContext, CDPSession, Page

from bench import large_cluster
from bench.harness import LeanClient, Server, result, server
from tests.web.browsing import PAGES, chromium, follow_link, login_code

LIVE, FINISHED = 10_000, 100_000
CHANGES_PER_S = 10
YIELDING = 15
"""Niceness of the browser."""
READY_LIMIT_MS, LAG_LIMIT_MS, GROWTH_LIMIT_PCT = 1_000, 2_000, 10
CORE_LIMIT_PCT, SUBMIT_LIMIT_PCT, LOAD_LIMIT_KB = 15, 20, 400
OPEN = ("/", "/jobs", "/nodes", "/queues", "/timeline?range=6h")
"""Pages of one viewer."""
VIEWERS = (large_cluster.ADMIN, large_cluster.ADMIN, "user00", "user01")
GO = """page => new Promise(done => {
    if (new URL(page, location).pathname === location.pathname) throw new Error(`${page}: the same heading`);
    const former = document.querySelector('main h1'), begun = performance.now();
    if (former) former.dataset.former = '1';
    history.pushState(null, '', page);
    dispatchEvent(new PopStateEvent('popstate'));
    const soon = call => document.hidden ? setTimeout(call, 16) : requestAnimationFrame(call);  // none while hidden
    let first = 0;
    const look = () => {
        const shown = document.querySelector('main h1:not([data-former])');
        const problem = document.querySelector('main .problem');
        if (problem) return done({ready: 60000, problem: problem.textContent});
        if (shown && !first) first = performance.now() - begun;
        if (shown && !document.querySelector('main .loading')) {
            return soon(() => done({first, ready: performance.now() - begun}));
        }
        if (performance.now() - begun > 60000) return done({ready: 60000, problem: 'still loading'});
        soon(look);
    };
    look();
})"""
"""Shows a page as a link does; resolves when nothing of it is loading any more and that is drawn (ms), at most 60 s.

It waits for another heading, so the page must be of another path than the one that is shown: `leave` first.
"""
PLAIN = ("/submit", "/alerts", "/audit")
"""Pages that show no jobs, for `leave`."""
WARM_UP = 4
"""Rounds through all pages before memory is measured: till then it grows by the machine code of their scripts."""
READINGS = 5
NO_DATA = ("code", "object shape", "native", "hidden", "synthetic")
WATCH = """id => new Promise(done => {
    const text = () => document.querySelector(`main tr[data-row='${id}']`)?.textContent ?? '';
    const former = text(), begun = performance.now();
    window.changed = new Promise(done => {
        const look = () => text() !== former || performance.now() - begun > 30000
            ? done(performance.timeOrigin + performance.now()) : setTimeout(look, 5);
        look();
    });
    done(former);
})"""
"""Begins to wait until a row's text changes; `changed` becomes the time of it (unix ms)."""


def submit_all_the_time(orders: Connection, address: tuple[str, int], token: str, trusted: str) -> None:
    """Submit short jobs until `orders` closes; for each order send how long each submit since then took (ms)."""
    client = LeanClient(address, token, trusted)
    body = json.dumps({"name": "short", "command": ["true"], "pool": "aside", "cpus": 1}).encode()
    took_ms: list[float] = []
    with contextlib.suppress(EOFError):
        while True:
            if orders.poll(1 / CHANGES_PER_S):
                orders.recv()
                orders.send(took_ms)
                took_ms = []
            begun = time.perf_counter()
            client.submit(body, uuid.uuid4().hex)
            took_ms.append((time.perf_counter() - begun) * 1000)


class Churn:
    """Submits short jobs all the time, and keeps how long each was answered after.

    A process of its own does: beside what this one handles of twenty pages, a submit would wait for the interpreter.
    """

    def __init__(self, running: Server) -> None:
        spawn = multiprocessing.get_context("spawn")
        self._orders, theirs = spawn.Pipe()
        given = (theirs, running.address, running.token, running.trusted)
        self._process = spawn.Process(target=submit_all_the_time, args=given, daemon=True)
        self._theirs = theirs

    def __enter__(self) -> "Churn":
        self._process.start()
        self._theirs.close()
        return self

    def __exit__(self, *_: object) -> None:
        self._orders.close()
        self._process.join()

    def taken(self) -> list[float]:
        """Return how long each submit since the last call took (ms)."""
        try:
            self._orders.send(None)
            found: list[float] = self._orders.recv()
        except (EOFError, OSError):
            raise SystemExit("a submit was refused") from None
        return found


class Window(NamedTuple):
    """What was measured in one while."""

    core_pct: float
    submits_ms: list[float]


def cpu_s(pid: int) -> float:
    """Return the CPU time of a server and of the processes that it uses for work of its own."""
    total, own = 0.0, psutil.Process(pid)
    for process in (own, *own.children()):
        try:
            if process.pid == pid or "penstock.engines" not in " ".join(process.cmdline()):
                times = process.cpu_times()
                total += times.user + times.system
        except psutil.NoSuchProcess:
            continue
    return total


def url_of(running: Server) -> str:
    return f"http://{running.address[0]}:{running.address[1]}"


def until_ready(running: Server, nodes: int) -> None:
    """Wait for the real node beside those of the past, and until the server has read that past."""
    deadline = time.monotonic() + 600
    while running.client.cluster().nodes_ready <= nodes:
        if time.monotonic() > deadline:
            raise SystemExit("the real node is not ready")
        time.sleep(0.1)
    while not asked(running, "/series?names=jobs_waiting")["complete"]:
        if time.monotonic() > deadline:
            raise SystemExit("the server has not read the past")
        time.sleep(2)
    for path in ("/usage?since=30d", "/waste?since=30d", "/bill?summed=true", "/accounts"):  # it asks itself these, too
        asked(running, path)


def asked(running: Server, path: str) -> Any:
    """Return an answer of the API, not the newest where that takes long."""
    headers = {"Authorization": f"Bearer {running.token}", "Cache-Control": "max-stale=3600"}
    connection = http.client.HTTPConnection(*running.address, timeout=120)
    try:
        connection.request("GET", f"/api/v1{path}", headers=headers)
        return json.loads(connection.getresponse().read())
    finally:
        connection.close()


@contextmanager
def browser(cpus: set[int]) -> Iterator[Browser]:
    """Give a browser that runs on these CPUs alone, and yields to all else there."""
    own = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cpus)
    with chromium() as opened:
        os.sched_setaffinity(0, own)
        for process in of_browser():
            process.nice(YIELDING)
        yield opened


def divided() -> tuple[set[int], set[int]]:
    """Return the CPUs of the server and of who submits, and the one of the browser, which is theirs, too, if alone."""
    *others, last = sorted(os.sched_getaffinity(0))
    return set(others) or {last}, {last}


def of_browser() -> list[psutil.Process]:
    return [process for process in psutil.Process().children(recursive=True) if "chrom" in process.name()]


def step_aside() -> None:
    """Let the browser, and what drives it, run only while the server and who submits leave a CPU idle.

    People have theirs elsewhere.
    """
    drivers = [one for one in psutil.Process().children(recursive=True) if one.name() == "node"]
    for process in (psutil.Process(), *drivers, *of_browser()):
        for thread in process.threads():  # those that it starts later are as these
            os.sched_setscheduler(thread.id, os.SCHED_IDLE, os.sched_param(0))


def signed_in(opened: Browser, running: Server, token: str) -> tuple[BrowserContext, Page]:
    """Return a viewer's context, and its first page, at the overview."""
    context = opened.new_context(viewport={"width": 1440, "height": 900})
    page = context.new_page()
    follow_link(page, url_of(running), login_code(url_of(running), token))
    page.locator(".shell main h1").first.wait_for(timeout=60_000)
    return context, page


def leave(page: Page, path: str) -> None:
    """Show a page of another path than the one that is shown and the one to be shown next."""
    here = urlsplit(page.url).path
    page.evaluate(GO, next(other for other in PLAIN if other not in (here, urlsplit(path).path)))


def heap_mb(session: CDPSession) -> float:
    """Return the memory that scripts of a page still use, after collection."""
    session.send("HeapProfiler.collectGarbage")
    return float(session.send("Runtime.getHeapUsage")["usedSize"]) / 1e6


def data_mb(session: CDPSession) -> float:
    """Return the memory of what scripts of a page keep: without their machine code and the browser's own objects."""
    chunks = list[str]()

    def keep(event: dict[str, str]) -> None:
        chunks.append(event["chunk"])

    session.on("HeapProfiler.addHeapSnapshotChunk", keep)
    session.send("HeapProfiler.takeHeapSnapshot")
    session.remove_listener("HeapProfiler.addHeapSnapshotChunk", keep)
    taken = json.loads("".join(chunks))
    meta = taken["snapshot"]["meta"]
    fields, kinds, nodes = meta["node_fields"], meta["node_types"][0], taken["nodes"]
    of_kind, of_size = (nodes[fields.index(name) :: len(fields)] for name in ("type", "self_size"))
    return sum(size for kind, size in zip(of_kind, of_size, strict=True) if kinds[kind] not in NO_DATA) / 1e6


def least_mb(page: Page, sessions: Sequence[CDPSession], read: Callable[[CDPSession], float]) -> list[float]:
    """Return the memory of several pages: the least of some readings, as answers that are just read count in none."""
    readings = []
    for _ in range(READINGS):
        readings.append([read(session) for session in sessions])
        page.wait_for_timeout(400)
    return [min(of_one) for of_one in zip(*readings, strict=True)]


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value at a share of the sorted ones, the greater one in doubt."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, math.ceil(share * len(ordered)) - 1)]


# The measurements.


def first_load(opened: Browser, running: Server) -> None:
    """Print what a viewer's first page brings over the wire, with the worker that pages share."""
    context = opened.new_context(viewport={"width": 1440, "height": 900})
    page, sizes = context.new_page(), list[float]()
    session = context.new_cdp_session(page)
    session.on("Network.loadingFinished", lambda event: sizes.append(event["encodedDataLength"]))
    session.send("Network.enable")
    follow_link(page, url_of(running), login_code(url_of(running), running.token))
    page.locator(".shell main h1").first.wait_for(timeout=60_000)
    page.locator("main .loading").first.wait_for(state="detached", timeout=60_000)
    page.wait_for_timeout(1_000)
    static = Path(large_cluster.__file__).parents[1] / "src/penstock/web/static/assets"
    worker = next(path.name for path in static.glob("worker-*.js"))
    connection = http.client.HTTPConnection(*running.address)
    connection.request("GET", f"/assets/{worker}", headers={"Accept-Encoding": "gzip"})
    sizes.append(len(connection.getresponse().read()))
    connection.close()
    context.close()
    result("first_load_kb", sum(sizes) / 1000, "kB", "lower", LOAD_LIMIT_KB, {"name": "requests", "value": len(sizes)})


def pages_ready(opened: Browser, running: Server, rounds: int) -> None:
    """Print how long the slowest page took to be ready; each is opened anew in each round, and the median counts."""
    job = min(view.id for view in running.client.jobs(state="running", limit=1).jobs)
    pages = PAGES | {"job": f"/jobs/{job}"}
    ready: dict[str, list[float]] = {name: [] for name in pages}
    cpu: dict[str, list[float]] = {name: [] for name in pages}
    for _ in range(rounds):
        context, page = signed_in(opened, running, running.token)
        for name, path in pages.items():
            leave(page, path)
            begun_s = cpu_s(running.pid)
            seen = page.evaluate(GO, path)
            if "problem" in seen:
                print(f"{path}: {seen['problem']}", file=sys.stderr, flush=True)
            ready[name].append(seen["ready"])
            cpu[name].append((cpu_s(running.pid) - begun_s) * 1000)
        context.close()
    medians = {name: statistics.median(values) for name, values in ready.items()}
    for name, value in sorted(medians.items(), key=lambda item: -item[1]):
        spread = f"{value:8.0f} ms ({min(ready[name]):.0f} to {max(ready[name]):.0f})"
        print(f"{name:10} {spread:30} server {statistics.median(cpu[name]):6.0f} ms CPU", file=sys.stderr)
    worst = max(medians, key=lambda name: medians[name])
    reference = {"name": f"the form to submit, which shows no jobs; the worst is {worst}", "value": medians["submit"]}
    result("page_ready_ms_worst", medians[worst], "ms", "lower", READY_LIMIT_MS, reference)


def live_lag(opened: Browser, running: Server, count: int) -> None:
    """Print how long after a job was cancelled its row says so on an open list of jobs."""
    jobs = [running.client.submit({"name": "long", "command": "sleep 3600", "pool": "aside"}) for _ in range(count)]
    context, page = signed_in(opened, running, running.token)
    page.evaluate(GO, "/jobs?search=long")
    page.wait_for_timeout(2_000)
    lags = []
    for made in jobs:
        number = made.jobs[0].id
        if "long" not in page.evaluate(WATCH, number):
            raise SystemExit(f"job {number} is not on the page")
        asked_ms = time.time() * 1000
        running.client.cancel(number)
        lags.append(page.evaluate("window.changed") - asked_ms)
    context.close()
    reference = {"name": "median", "value": round(statistics.median(lags))}
    result("live_lag_ms_p95", percentile(lags, 0.95), "ms", "lower", LAG_LIMIT_MS, reference)


def growth(opened: Browser, running: Server, seconds: float) -> None:
    """Print by how much the data of scripts grows: on a list that changes, and on a page that goes through all."""
    context, still = signed_in(opened, running, running.token)
    still.evaluate(GO, "/jobs")
    moving = context.new_page()
    moving.goto(f"{url_of(running)}/alerts")
    moving.locator(".shell main h1").first.wait_for()
    sessions = [context.new_cdp_session(page) for page in (still, moving)]

    def once() -> list[float]:
        for path in PAGES.values():
            leave(moving, path)
            seen = moving.evaluate(GO, path)
            if "problem" in seen:
                raise SystemExit(f"{path}: {seen['problem']}")
            moving.wait_for_timeout(300)
        leave(moving, "/")
        return least_mb(moving, sessions, heap_mb)

    for _ in range(WARM_UP):
        once()
    before = after = once()
    kept = least_mb(moving, sessions, data_mb)
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        after = once()
        print(f"heap {[round(one, 2) for one in after]} MB", file=sys.stderr, flush=True)
    kept_then = least_mb(moving, sessions, data_mb)
    context.close()
    reference = {
        "name": "MB of a list that changes and a page that moves, at the start and the end; the same with machine code",
        "value": [round(x, 2) for x in (*kept, *kept_then, *before, *after)],
    }
    grown = [100 * (b - a) / a for a, b in zip(kept, kept_then, strict=True)]
    result("browser_growth_pct", max(grown), "%", "lower", GROWTH_LIMIT_PCT, reference)


def window(running: Server, churn: Churn, page: Page, seconds: float) -> Window:
    churn.taken()
    begun_s, begun = cpu_s(running.pid), time.monotonic()
    page.wait_for_timeout(seconds * 1000)
    used = cpu_s(running.pid) - begun_s
    return Window(100 * used / (time.monotonic() - begun), churn.taken())


def twenty_pages(opened: Browser, running: Server, churn: Churn, seconds: float, turns: int) -> None:
    """Print what 20 open pages cost the server, and by how much they move the latency of submits."""
    step_aside()
    without, with_pages = list[Window](), list[Window]()
    watcher = opened.new_page()
    tokens = [running.client.create_token({"user": user, "level": "read"}).token for user in VIEWERS]
    for _ in range(turns):
        without.append(window(running, churn, watcher, seconds))
        contexts = []
        for token in tokens:
            context, _ = signed_in(opened, running, token)
            contexts.append(context)
            for path in OPEN[1:]:  # the first is there
                other = context.new_page()
                other.goto(f"{url_of(running)}{path}")
                other.locator(".shell main h1").first.wait_for(timeout=60_000)
        watcher.wait_for_timeout(8_000)
        with_pages.append(window(running, churn, watcher, seconds))
        for context in contexts:
            context.close()
        watcher.wait_for_timeout(3_000)
    alone, seen = (statistics.fmean(one.core_pct for one in found) for found in (without, with_pages))
    reference = {"name": "the server without pages", "value": round(alone, 2)}
    result("server_core_pct_20_pages", seen - alone, "%", "lower", CORE_LIMIT_PCT, reference)
    p99 = [percentile([ms for one in found for ms in one.submits_ms], 0.99) for found in (without, with_pages)]
    p50 = [percentile([ms for one in found for ms in one.submits_ms], 0.5) for found in (without, with_pages)]
    known = {"name": "p99 without and with, p50 without and with (ms)", "value": [round(x, 2) for x in (*p99, *p50)]}
    result("submit_p99_growth_pct", 100 * (p99[1] / p99[0] - 1), "%", "lower", SUBMIT_LIMIT_PCT, known)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the cluster and of the time")
    parser.add_argument("--past", type=Path, help="folder in which the log is kept between runs")
    parser.add_argument("--only", choices=("load", "pages", "lag", "growth", "cost"), action="append")
    given = parser.parse_args()
    part = 10 if given.quick else 1
    nodes = large_cluster.NODES // part

    def before(data: Path) -> None:
        kept = given.past or data
        if not kept.exists():
            large_cluster.write(kept, live=LIVE // part, finished=FINISHED // part, nodes=nodes)
        if kept != data:
            shutil.copytree(kept, data)

    def wanted(name: str) -> bool:
        return not given.only or name in given.only

    declared = large_cluster.CLUSTER
    cpus, last = divided()
    os.sched_setaffinity(0, cpus)
    with server(declared=declared, before=before) as running, browser(last) as opened, Churn(running) as churn:
        until_ready(running, nodes)
        print(f"load {os.getloadavg()}", file=sys.stderr)
        if wanted("load"):
            first_load(opened, running)
        if wanted("pages"):
            pages_ready(opened, running, 1 if given.quick else 3)
        if wanted("lag"):
            live_lag(opened, running, 10 if given.quick else 40)
        if wanted("cost"):
            twenty_pages(opened, running, churn, 60 / part, 1 if given.quick else 3)
        if wanted("growth"):
            growth(opened, running, 600 / part)
        print(f"load {os.getloadavg()}", file=sys.stderr)


if __name__ == "__main__":
    main()
