"""The kill sweep: `python -m tests.crash.sweep --points 200` prints one line of JSON, and fails on a broken promise."""

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec

from penstock.client import Client
from penstock.core.model.errors import PenstockError
from penstock.core.model.events import Record
from penstock.core.state.state import State
from penstock.store.address import address_of, open_store
from tests.crash.audit import Audit
from tests.crash.cluster import Cluster, until
from tests.crash.killer import Killer
from tests.crash.load import Load

TARGET = 110
DRAIN_WAIT_S = 90.0


def sweep(folder: Path, *, points: int, seed: int, store: str = "") -> dict[str, Any]:
    """Run a load with `points` kills and return the figures; `findings` lists every broken promise.

    Args:
        store: address of a database to keep the log in; by default it is in the data folder.
    """
    begin = time.monotonic()
    cluster = Cluster(folder / "data", store=store)
    load = Load(cluster, seed=seed, target=TARGET)
    killer = Killer(cluster, load, seed=seed)
    try:
        with cluster:
            load.start()
            killer.run(points)
            load.finish()
            until(lambda: _live(cluster) == 0, "every job has ended", DRAIN_WAIT_S)
            until(lambda: not cluster.processes("replica"), "no process of a replica is left", 5)
            audit = _audited(cluster, load, killer)
            _leftovers(cluster, audit)
    finally:
        load.stop()
    (folder / "kills.json").write_bytes(msgspec.json.encode(killer.kills))
    return _figures(load, killer, audit, seed=seed, seconds=time.monotonic() - begin)


def _live(cluster: Cluster) -> int:
    try:
        shown = cluster.ask(Client.cluster)
    except PenstockError:
        return -1
    return shown.jobs_waiting + shown.jobs_active


def _audited(cluster: Cluster, load: Load, killer: Killer) -> Audit:
    records = cluster.ask(lambda client: list(client.all_events()))
    views = cluster.ask(lambda client: [client.job(job_id) for job_id in load.accepted.values()])
    audit = Audit(load, killer.kills, records)
    audit.run(views)
    audit.findings += [("the server ends only when killed", f"exit {code}") for code in killer.server_faults]
    cluster.stop()
    audit.findings += _store_differs(cluster, records)
    return audit


def _store_differs(cluster: Cluster, told: list[Record]) -> list[tuple[str, str]]:
    """Compare the log on disk, as the next server would load it, with what the server told."""
    store = open_store(address_of(cluster.data.log, None, cluster.data.store_address))
    try:
        image, tail = store.load()
        loaded = State.from_image(image) if image else State()
        for record in tail:
            loaded.apply(record)
        kept = store.records(0, len(told) + 1_000)
    finally:
        store.close()
    folded = State()
    for record in kept:
        folded.apply(record)
    findings = []
    if kept[: len(told)] != told:
        findings.append(("the log is what was told", f"{len(kept)} kept, {len(told)} told"))
    if folded.image() != loaded.image():
        findings.append(("snapshot and log agree", f"at event {folded.seq}"))
    return findings


def _leftovers(cluster: Cluster, audit: Audit) -> None:
    for pid in cluster.processes():
        audit.findings.append(("no process is left", Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")))
    audit.findings += [("no control group is left", str(box)) for box in cluster.boxes()]


def _figures(load: Load, killer: Killer, audit: Audit, *, seed: int, seconds: float) -> dict[str, Any]:
    flights = [k.in_flight for k in killer.kills]
    promises = Counter(promise for promise, _ in audit.findings)
    return {
        "kill_points": len(killer.kills),
        "kills": dict(Counter(k.what for k in killer.kills)),
        "in_flight_min": min(flights),
        "in_flight_mean": round(sum(flights) / len(flights), 1),
        "jobs_asked": len(load.asked),
        "jobs_accepted": len(load.accepted),
        "answered_again": load.repeated,
        "given_up_by_client": len(load.abandoned),
        **{name.replace(" ", "_"): count for name, count in sorted(audit.counts.items())},
        "seed": seed,
        "seconds": round(seconds, 1),
        "broken": dict(promises),
        "findings": [f"{promise}: {detail}" for promise, detail in audit.findings[:30]],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="folder to leave everything in")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="penstock-sweep-") as temporary:
        figures = sweep(options.keep or Path(temporary), points=options.points, seed=options.seed)
    print(json.dumps(figures))
    sys.exit(1 if figures["broken"] else 0)


if __name__ == "__main__":
    main()
