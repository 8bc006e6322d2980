"""A server on which every example of the command line works: its jobs, files and names; and what commands there are."""

import contextlib
import getpass
import json
import shlex
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from penstock.cli import commands, main
from penstock.testing.builders import cluster_file
from penstock.traces import write_csv
from tests.cli.conftest import Terminal
from tests.server.harness import Jobs, Server, until
from tests.server.services.test_billing import past_server
from tests.sim.replay.builders import job, trace

SAMPLES = Path(__file__).parents[1] / "migrate" / "samples"
POLLUX = Path(__file__).parents[1] / "traces" / "samples" / "pollux"
TRAINING = """
trap 'echo saved; touch "$PENSTOCK_CHECKPOINT_DIR/x"' USR1
echo '{"kind": "step", "step": 3}' >> "$PENSTOCK_REPORT_FILE"
while :; do sleep 0.1; done
"""
LOCAL = {
    *("version", "help", "schema", "sim", "sizing", "checkpoints", "run", "up", "certificates", "mig", "slurm-shims"),
    *("import slurm", "import kueue", "import volcano", "import yunikorn"),
    *("store backup", "store restore", "store verify", "manifests", "completion install", "completion show"),
    "node join",
}
"""Commands that need no running server, or start one."""
PAGER = {"commands": [{"name": "pager", "path": "/bin/true"}]}
ALONE = {"up", "down", "store restore", "store backup", "store verify", "certificates", "attach", "mcp"}
ALONE |= {"completion install", "node join"}
"""Commands whose examples are run on a data folder of their own, change the server itself, or end with a job."""
NOT_JSON = {"help", "mcp", "shell", "exec", "logs", "events", "run", "audit", "top", "completion show"}
NOT_JSON |= {"sbatch", "slurm", "slurm-shims"}
"""Commands whose output is another program's, a stream, or lines of JSON."""
NUMBERED = {"-g", "-n", "--attempt", "--rank", "--tail", "--last", "--days", "lease", "node-b"}
"""Words after which a number is no job's."""


def leaves() -> list[str]:
    """Return the names of all commands that run something."""

    def below(command: Any, name: str) -> Iterator[str]:
        members = getattr(command, "commands", {})
        if not members:
            yield name
        for word in members:
            member = main.load(f"{name} {word}") if name in commands.GROUPS else members[word]
            yield from below(member, f"{name} {word}")

    shown = [name for name, entry in commands.TOP.items() if not entry.hidden]
    return [leaf for name in shown for leaf in below(main.load(name), name)]


LEAVES = leaves()


class Stage(NamedTuple):
    """A server with jobs in all states, and the names that the examples use for them."""

    server: Server
    folder: Path
    names: dict[str, str]
    reader: str
    """A token that may only read."""

    def terminal(self) -> Terminal:
        return Terminal(self.folder, self.server.data.root, self.server.root)

    def words(self, line: str) -> list[str]:
        """Return the words of an example with this server's numbers and names."""
        words = shlex.split(line)
        pairs = zip(words, ["", *words], strict=False)
        return [word if before in NUMBERED else self.names.get(word, word) for word, before in pairs]


def built(folder: Path) -> Iterator[Stage]:
    """Yield a stage in a folder; its server ends with it."""
    (folder / "job.yaml").write_text("command: sh -c 'exit 0'\nname: filed\n")
    (folder / "src").mkdir()
    for name in ("train.py", "eval.py", "src/train.py"):
        (folder / name).write_text("print('done')\n")
    (folder / "train.sh").write_text("#!/bin/sh\n#SBATCH --job-name=train-script\npython train.py\n")
    write_csv(trace(*(job(i * 60, 300, 1 + i % 4) for i in range(20))), folder / "trace.csv")
    shutil.copy(folder / "trace.csv", folder / "earlier.csv")
    shutil.copy(POLLUX / "workloads" / "workload-9.csv", folder / "workload-1.csv")
    shutil.copytree(POLLUX / "profiles", folder / "profiles")
    for path in (SAMPLES / "slurm").iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    for sample in ("kueue/queues.yaml", "volcano/queues.yaml", "yunikorn/queues.yaml"):
        engine, name = sample.split("/")
        target = folder / (name if engine == "yunikorn" else f"{engine}.yaml")
        target.write_bytes((SAMPLES / sample).read_bytes())
    users = [{"name": getpass.getuser(), "role": "admin"}]
    too = {
        "queues": [{"name": "default"}, {"name": "batch"}],
        "users": users,
        "notifications": PAGER,
        "nodes": cluster_file(2, 4)["nodes"],
    }
    server, _ = past_server(folder / "data", declared_too=too, invoices={"issue": "manual"})
    with server:
        (folder / "cluster.yaml").write_text(json.dumps(server.declared))
        yield Stage(server, folder, _names(server), _reader(server))


def _names(server: Server) -> dict[str, str]:
    """Submit the jobs of the examples; return the names of what the examples speak of."""
    client = server.client
    trained = client.submit(
        {
            "name": "train",
            "tenant": "vision",
            "devices": 2,
            "preemptible": False,
            "command": ["sh", "-c", TRAINING],
            "checkpoint": {"request_signal": "SIGUSR1"},
        }
    )
    ended = client.submit({"name": "prep", "tenant": "vision", "command": ["sh", "-c", "echo ready"]})
    runs = client.submit({"name": "tune", "tenant": "vision", "command": "sleep 600"})
    waits = client.submit(
        {"name": "train-big", "tenant": "vision", "devices": 4, "replicas": 2, "command": "sleep 600"}
    )
    swept = client.submit({"name": "sweep", "tenant": "vision", "devices": 4, "array": 9, "command": "sleep 600"})
    client.submit({"name": "train-last", "tenant": "vision", "devices": 4, "replicas": 2, "command": "true"})
    client.act("hold", {"name": "train-last"})
    Jobs(server.client).ended(ended.jobs[0].id)
    client.set_schedule("nightly", {"tenant": "vision", "command": "true", "schedule": {"cron": "@daily"}})
    snapshot = _sent_long_ago(server)
    until(lambda: client.job(trained.jobs[0].id).step == 3, "the training reports")
    client.add_credit("vision", {"amount": "9.00", "reference": "r"})
    credited = next(entry.seq for entry in client.journal("vision").entries if entry.text == "payment in advance r")
    number = client.issue_invoice("vision").number
    token = client.create_token({"level": "read", "days": 1})
    client.declare_node({"name": "gpu-7"})
    first = swept.jobs[0].id
    numbers = {"1": trained.jobs[0].id, "2": ended.jobs[0].id, "3": waits.jobs[0].id, "8": runs.jobs[0].id}
    numbers |= {"4": first, "5-6": f"{first + 1}-{first + 2}", "4[3-5]": f"{first}[3-5]", "42": credited}
    given = {name: str(value) for name, value in numbers.items()}
    return given | {
        "node-b": "n2",
        "2026-0001": number,
        "3f9a1c": token.id,
        "SIM-A100": "SIM-80G",
        "5e1c09": snapshot[:6],
    }


def _sent_long_ago(server: Server) -> str:
    """Send a small folder; return its name."""
    folder = server.root / "project"
    folder.mkdir(exist_ok=True)
    (folder / "train.py").write_text("print('ready')\n")
    name = server.client.send_folder(folder).name
    for path in server.data.folder_snapshots.glob("*/snapshots.sqlite"):
        with contextlib.closing(sqlite3.connect(path)) as db, db:
            db.execute("UPDATE snapshots SET used_ms = used_ms - 3600000")
    return name


def _reader(server: Server) -> str:
    return server.client.create_token({"level": "read", "days": 1}).token
