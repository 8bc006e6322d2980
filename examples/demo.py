"""`make demo`: a server and a pool of two virtual nodes on this machine, real trainings, a preemption that loses no
work, a node that dies, and a report of it all. Needs no accelerator: the devices are simulated and marked as such.

Exit code 0 only when every promise that the demo makes was kept; each is checked from the event log.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from penstock.client import Client
from penstock.core.model import events as ev
from penstock.engines.local.launch import agent_pid
from penstock.engines.processes.paths import DataFolder
from penstock.engines.processes.procfs import REPLICA_MARK, all_pids
from penstock.report.text import counted, duration

HERE = Path(__file__).resolve().parent
TRAINER = str(HERE / "digits_numpy.py")
LONG_STEPS, NIGHT_STEPS = 700, 600
NIGHT_STEP_MS, NIGHT_INTERVAL_S = 15, 1
INTERVAL_STEPS = 1000 * NIGHT_INTERVAL_S // NIGHT_STEP_MS + 30
"""Steps in one checkpoint interval, and those done while a checkpoint is written."""
WAIT_S = 120.0
TENANT_COLOUR = {"vision": "cyan", "speech": "yellow", "research": "magenta"}


class Demo:
    """The story, printed while it happens."""

    def __init__(self, out: Path) -> None:
        self.out = out
        self.data = out / "data"
        self.console = Console(highlight=False)
        self.client: Client
        self.names: dict[int, tuple[str, str]] = {}
        self._after = 0
        self._begun = time.monotonic()

    # Saying what happens.

    def say(self, text: str) -> None:
        self.console.print(f"[dim]{time.monotonic() - self._begun:6.1f}s[/]  {text}")

    def title(self, text: str) -> None:
        self.console.print(f"\n[bold]{text}[/]")

    def narrate(self) -> None:
        """Print what the log says since the last call."""
        for record in self.client.events(self._after):
            self._after = record.seq
            line = self._line(record.event, record.time_ms)
            if line:
                self.say(line)

    def _job(self, job_id: int) -> str:
        name, tenant = self.names.get(job_id, ("", ""))
        return f"[{TENANT_COLOUR.get(tenant, 'white')}]{escape(name)}[/] (job {job_id})"

    def _line(self, event: ev.AnyEvent, time_ms: int) -> str:
        match event:
            case ev.JobSubmitted():
                label = f"{event.spec.name}[{event.array_index}]" if event.array_id else event.spec.name
                self.names[event.job_id] = (label, event.spec.tenant)
            case ev.AttemptAllocated():
                where = ", ".join(f"{p.node}{list(p.devices) if p.devices else ''}" for p in event.places)
                again = f", attempt {event.attempt}" if event.attempt > 1 else ""
                return f"{self._job(event.job_id)} starts on {escape(where)}{again}"
            case ev.AttemptStopRequested(reason="preempted"):
                return (
                    f"[bold magenta]preemption:[/] {self._job(event.job_id)} is asked to save and make room for "
                    f"{self._job(event.beneficiary or 0)}"
                )
            case ev.CheckpointSaved() if event.why in ("preemption", "request"):
                return f"{self._job(event.job_id)} saved step {event.step} ({event.why})"
            case ev.JobResumed():
                return f"{self._job(event.job_id)} resumes at step {event.step}; steps lost: {event.lost_steps}"
            case ev.NodeLost():
                silent = duration(time_ms - (event.heard_ms or time_ms))
                return f"[bold red]node {event.node} is lost:[/] {event.reason} ({silent} of silence)"
            case ev.JobFinished():
                colour = "green" if event.state == "succeeded" else "red"
                why = f": {escape(event.reason)}" if event.reason else ""
                return f"{self._job(event.job_id)} [{colour}]{event.state}[/]{why}"
            case _:
                return ""
        return ""

    def until(self, done: Callable[[], bool], what: str) -> None:
        """Tell what happens until `done`; fail when it takes too long."""
        deadline = time.monotonic() + WAIT_S
        while not done():
            self.narrate()
            if time.monotonic() > deadline:
                raise SystemExit(f"demo: this did not happen within {WAIT_S:.0f} s: {what}")
            time.sleep(0.15)
        self.narrate()

    # The acts.

    def submit(self, *jobs: dict[str, Any]) -> list[int]:
        environment = {"PYTHONPATH": os.environ.get("PYTHONPATH", ""), "PATH": os.environ["PATH"]}
        complete = [{"env": environment, "workdir": str(HERE), "cpus": 1, **job} for job in jobs]
        made = self.client.submit(complete).jobs
        self.narrate()
        return [job.id for job in made]

    def train(self, steps: int, seed: int, step_ms: int) -> list[str]:
        return [sys.executable, TRAINER, "--steps", str(steps), "--seed", str(seed), "--step-ms", str(step_ms)]

    def step(self, job_id: int) -> int:
        return self.client.job(job_id).step

    def state(self, job_id: int) -> str:
        return self.client.job(job_id).state

    def run(self) -> int:
        self.title("Starting a server with two virtual nodes of four simulated devices each")
        self._penstock("up", "--cluster", str(HERE / "cluster.yaml"), "--no-respawn")
        self.client = Client.of(self.data)
        self.until(lambda: self.client.cluster().nodes_ready == 2, "both nodes are ready")
        try:
            return self._acts()
        finally:
            self._penstock("down", quiet=True)

    def _acts(self) -> int:
        self.title("Three teams submit: a gang, a long training at low priority, an array, a chain")
        gang, longhaul = self.submit(
            {
                "name": "gang",
                "tenant": "vision",
                "command": [sys.executable, str(HERE / "gang_mean.py"), "30"],
                "replicas": 2,
                "devices": 2,
                "topology": "spread",
            },
            {
                "name": "longhaul",
                "tenant": "research",
                "priority": "low",
                "devices": 4,
                "command": self.train(LONG_STEPS, 7, 15),
                "checkpoint": {"interval": "60s"},
                "grace": "20s",
            },
        )
        self.until(lambda: self.step(longhaul) > 60, "the long training is under way")
        self.submit(
            {
                "name": "sweep",
                "tenant": "speech",
                "array": 6,
                "devices": 1,
                "priority": "low",
                "preemptible": False,
                "command": f'"{sys.executable}" "{TRAINER}" --steps 60 --seed $PENSTOCK_ARRAY_INDEX',
            },
            {
                "name": "prepare",
                "tenant": "vision",
                "command": "sleep 0.5; echo data is ready > prepared.txt; cat prepared.txt",
                "workdir": str(self.out),
            },
            {"name": "fit", "tenant": "vision", "after_ok": "prepare", "devices": 1, "command": self.train(80, 3, 0)},
            {"name": "evaluate", "tenant": "vision", "after_ok": "fit", "command": "echo evaluated"},
        )
        self.title("An urgent job needs four devices on one node")
        before = self.step(longhaul)
        (urgent,) = self.submit(
            {
                "name": "urgent",
                "tenant": "vision",
                "priority": "high",
                "devices": 4,
                "preemptible": False,
                "command": self.train(150, 11, 10),
            }
        )
        self.until(lambda: self.state(urgent) != "waiting", "the urgent job starts")
        self.say(f"explain longhaul: {escape(self.client.explain(longhaul).text)}")
        self.until(lambda: self.state(urgent) == "succeeded", "the urgent job succeeds")
        self.until(lambda: self.client.cluster().jobs_waiting == 0, "everything that waited has started")
        self.until(lambda: self.state(longhaul) == "succeeded" or self.step(longhaul) > before, "longhaul goes on")

        self.title("A node dies: everything on it is killed at once")
        (night,) = self.submit(
            {
                "name": "nightly",
                "tenant": "research",
                "devices": 2,
                "command": self.train(NIGHT_STEPS, 21, NIGHT_STEP_MS),
                "checkpoint": {"interval": f"{NIGHT_INTERVAL_S}s"},
            }
        )
        self.until(lambda: self.client.job(night).checkpoint_step > 150, "the nightly training has saved")
        self.until(lambda: self.unsaved(night) > 20, "there is something to lose")
        victim = self.client.job(night).nodes[0]
        self.kill_node(victim)
        self.until(lambda: self.client.job(night).attempt >= 2, "the nightly training starts elsewhere")
        self.until(lambda: self.client.cluster().jobs_active + self.client.cluster().jobs_waiting == 0, "all jobs end")
        return self._finish({"gang": gang, "longhaul": longhaul, "urgent": urgent, "nightly": night})

    def unsaved(self, job_id: int) -> int:
        """Return how many steps the job is beyond its newest checkpoint, as far as the server knows."""
        job = self.client.job(job_id)
        return job.step - job.checkpoint_step

    def kill_node(self, node: str) -> None:
        """kill -9 the node's agent and every process of its replicas, as a power cut would."""
        agent = agent_pid(DataFolder(self.data), node)
        mark = f"{REPLICA_MARK}={node}.".encode()
        agents, replicas = [], []
        for pid in all_pids():
            try:
                environment = Path(f"/proc/{pid}/environ").read_bytes()
                parent = int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
            except OSError:
                continue
            if any(item.startswith(mark) for item in environment.split(b"\0")):
                replicas.append(pid)
            elif agent in (pid, parent):
                agents.append(pid)
        for pid in agents + replicas:  # the agent first: it must not live to tell
            os.kill(pid, signal.SIGKILL)
        self.say(f"[bold red]kill -9[/] of {len(agents + replicas)} processes: all of {node}")

    # The end.

    def _finish(self, jobs: dict[str, int]) -> int:
        self.title("What is left to prove")
        undisturbed = {
            "longhaul": self._digest_alone(LONG_STEPS, 7),
            "nightly": self._digest_alone(NIGHT_STEPS, 21),
        }
        resumed = {
            name: json.loads((DataFolder(self.data).job(jobs[name]) / "result.json").read_text())["digest"]  # type: ignore[arg-type]
            for name in undisturbed
        }
        self._penstock("report", "--out", str(self.out))
        summary_path = self.out / "summary.json"
        summary = json.loads(summary_path.read_text())
        checks = promises(summary, undisturbed, resumed)
        self._show(checks)
        summary["demo"] = {"checks": {text: ok for text, ok, _ in checks}, "seconds": time.monotonic() - self._begun}
        summary_path.write_text(json.dumps(summary, indent=2) + "\n")
        self.console.print(f"\nReport: [bold]{self.out / 'report.html'}[/]   figures: {summary_path}")
        return 0 if all(ok for _, ok, _ in checks) else 1

    def _digest_alone(self, steps: int, seed: int) -> str:
        """Train without Penstock and without interruption; return the digest of the final weights."""
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, TRAINER, "--steps", str(steps), "--seed", str(seed), "--dir", folder]
            result = Path(folder) / "alone.json"
            # Jobs do not get these of the shell: they choose other kernels, and other last digits.
            kept = {name: text for name, text in os.environ.items() if not name.startswith("OPENBLAS")}
            environment = {**kept, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
            subprocess.run([*command, "--out", str(result)], check=True, capture_output=True, env=environment)
            return str(json.loads(result.read_text())["digest"])

    def _show(self, checks: list[tuple[str, bool, str]]) -> None:
        table = Table(box=None, pad_edge=False)
        for column in ("", "promise", "found"):
            table.add_column(column)
        for text, ok, found in checks:
            table.add_row("[green]ok[/]" if ok else "[bold red]NO[/]", text, found)
        self.console.print(table)

    def _penstock(self, *arguments: str, quiet: bool = False) -> None:
        command = [sys.executable, "-P", "-m", "penstock.cli.main", *arguments, "--data", str(self.data)]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        if done.returncode and not quiet:
            raise SystemExit(f"demo: penstock {arguments[0]} failed:\n{done.stderr}")
        for line in done.stdout.splitlines() if not quiet else ():
            self.say(escape(line))


def promises(
    summary: dict[str, Any], undisturbed: dict[str, str], resumed: dict[str, str]
) -> list[tuple[str, bool, str]]:
    """Return each promise, whether it was kept, and by which figures: those of the report, and digests of weights.

    As on the report's page: steps lost are those reported after the last durable checkpoint, and a job is back so long
    after its node was last heard.
    """
    totals, recoveries = summary["totals"], [r for r in summary["recoveries"] if r["restarted_after_ms"] is not None]
    resumptions = [p for p in summary["preemptions"] if p["resumed_step"] is not None]
    after_preemption = [p["lost_steps"] for p in resumptions]
    after_loss = [r["lost_steps"] for r in recoveries]
    back = [duration(r["restarted_after_ms"]) for r in recoveries]
    succeeded = totals["by_state"].get("succeeded", 0)
    return [
        ("every job succeeded", succeeded == totals["jobs"] > 0, f"{succeeded} of {totals['jobs']}"),
        ("a job was preempted and resumed", bool(resumptions), counted(totals["preemptions"], "preemption")),
        ("steps lost to preemptions: 0", after_preemption == [0] * len(resumptions), _sum(after_preemption)),
        (
            "the killed node's job was recovered",
            bool(recoveries),
            f"back after {', '.join(back)}",
        ),
        (
            "steps lost to the node: at most one checkpoint interval",
            all(lost is not None and lost <= INTERVAL_STEPS for lost in after_loss),
            f"{_sum(after_loss)} of at most {INTERVAL_STEPS}",
        ),
        *(
            (
                f"{name}: bit for bit equal to an undisturbed run",
                undisturbed[name] == resumed[name],
                resumed[name][:16],
            )
            for name in undisturbed
        ),
    ]


def _sum(steps: list[int | None]) -> str:
    return str(sum(lost or 0 for lost in steps))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("demo-out"), help="folder for the report; made anew")
    given = parser.parse_args()
    out = given.out.resolve()
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    sys.exit(Demo(out).run())


if __name__ == "__main__":
    main()
