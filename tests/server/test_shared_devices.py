"""Two real programs share a simulated device, live: they stay together as long as neither slows the other down."""

import json
import sys
from pathlib import Path

from penstock.core.audit import audit
from penstock.core.model.events import AttemptStopRequested, DeviceShared, DeviceShareEnded, UseNoted
from tests.server.harness import Jobs, Server, cluster_file, until

PARTED_WITHIN_S = 30.0
PROGRAM = r"""
import json, os, signal, sys, time

folder, index, job = sys.argv[1], os.environ["PENSTOCK_DEVICES"], os.environ["PENSTOCK_JOB_ID"]
device = open(f"{folder}/{index}")
saved, here = f"{folder}/step{job}", f"{folder}/on{index}"
os.makedirs(here, exist_ok=True)
open(f"{here}/{job}", "w").close()
step = int(open(saved).read()) if os.path.exists(saved) else 0


def say(**entry):
    with open(os.environ["PENSTOCK_REPORT_FILE"], "a") as file:
        file.write(json.dumps(entry) + "\n")


def save(*_):
    with open(saved, "w") as file:
        file.write(str(step))
    say(kind="checkpoint", step=step)


def leave(*_):
    save()
    os.unlink(f"{here}/{job}")
    sys.exit(0)


signal.signal(signal.SIGUSR1, save)
signal.signal(signal.SIGTERM, leave)
if step:
    say(kind="resumed", step=step)
while True:
    device.seek(0)
    slowdown = json.loads(device.read() or "{}").get("slowdown_milli", 1000) if len(os.listdir(here)) > 1 else 1000
    time.sleep(0.05 * slowdown / 1000)
    step += 1
    say(kind="progress", step=step)
"""


def say(folder: Path, **facts: object) -> None:
    """Let both devices report this from now on."""
    for index in (0, 1):
        (folder / str(index)).write_text(json.dumps({"use_each_milli": 300, "memory_each_bytes": 2**30, **facts}))


def events(server: Server, job: int, kind: type) -> list:
    return [one.event for one in server.client.job_events(job) if isinstance(one.event, kind)]


def test_programs_share_a_device_until_one_slows_the_other_down(tmp_path: Path):
    declared = cluster_file(1, 2) | {"pools": [{"name": "default", "sharing": {"window": "5s", "steps": 20}}]}
    with Server(tmp_path / "data", declared) as server:
        folder = server.data.node("n1") / "devices"
        folder.mkdir()
        (folder / "every").write_text("0.2")
        say(folder)
        jobs = Jobs(server.client)
        asked = {"devices": 1, "shareable": True, "checkpoint": {"request_signal": "SIGUSR1"}, "retries": 0}
        both = [jobs.submit([sys.executable, "-c", PROGRAM, str(folder)], **asked) for _ in range(2)]
        stays, moves = both
        until(lambda: events(server, stays, DeviceShared), "they are put together", 60)
        jobs.state(moves, "running")
        assert f"of device 0 of n1 with job {stays}: both use their devices little" in server.client.explain(moves).text
        assert [device.job for device in server.client.node("n1").devices].count(None) == 1

        def judged() -> bool:
            return all(events(server, job, UseNoted)[-1].steps >= 20 for job in both)

        met = len(events(server, stays, UseNoted))
        until(lambda: len(events(server, stays, UseNoted)) > met and judged(), "they are judged", 60)
        assert events(server, moves, DeviceShareEnded) == []
        assert len(events(server, moves, AttemptStopRequested)) == 1

        say(folder, slowdown_milli=1500)
        until(lambda: events(server, stays, DeviceShareEnded), "they are parted", PARTED_WITHIN_S)
        jobs.state(moves, "running")
        stops = [(stop.reason, stop.rule, stop.beneficiary) for stop in events(server, moves, AttemptStopRequested)]
        assert stops == [("moved", "pair", stays), ("moved", "part", stays)]
        assert [device.job for device in server.client.node("n1").devices] == both
        assert server.client.job(moves).attempt == 3
        decided = [r for r in audit(list(server.client.all_events())) if r.rule in ("pair", "part")]
        assert [(r.kind, r.rule, [check.holds for check in r.checks]) for r in decided] == [
            ("stop", "pair", [True]),
            ("start", "pair", [True]),
            ("stop", "part", [True]),
        ]
        jobs.close()
