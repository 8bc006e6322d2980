"""What runs on each node of an allocation: it becomes the node's agent, and leaves a warden behind.

`python -m penstock.engines.slurm.pilot.onnode FOLDER` waits for the key of its node (`FOLDER/JOB/NUMBER.json`), and
becomes the agent, which offers what the allocation holds of the node: its CPUs, its memory, its devices.

The warden is a process of its own, outside of the tree that Slurm kills where it tracks processes by their parents:
when the agent has died it kills what the agent's jobs have left, and when Slurm's own process of the step has died
without a word it ends the agent. Where Slurm tracks processes by control groups, it kills all of them, the warden too.
"""

import argparse
import contextlib
import fcntl
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from penstock import starts
from penstock.engines.agent.journal import replay
from penstock.engines.processes import procfs
from penstock.engines.processes.boxes import Box, kill_inside
from penstock.engines.processes.containment import KIND_VARIABLE
from penstock.engines.processes.memory import groups_of_slurm
from penstock.engines.processes.procfs import Process
from penstock.engines.processes.sessions import SessionContainment
from penstock.engines.slurm.pilot.marks import key_file, over_mark
from penstock.privatefiles import check

KEY_WAIT_S = 900.0
"""For the key of the node: the server may be away, or its storage slow to show new files."""
LOOK_S = 0.25
WARDEN_S = 0.5
END_WAIT_S = 15.0
"""For an agent that was asked to leave; then it is killed."""
PORTS_FIRST, PORTS_EACH, PORT_RANGES = 21_000, 100, 100
KEPT_OF_SLURM = ("SLURM_CONF",)
DROPPED = ("SLURM_", "SBATCH_", "SRUN_", "PMI_", "PMIX_", "CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES",
           "GPU_DEVICE_ORDINAL", "HIP_VISIBLE_DEVICES", "ZE_AFFINITY_MASK")  # fmt: skip
"""Variables of Slurm, by their beginning: jobs would take themselves for the allocation."""
HELD = ("SLURM_STEP_GPUS", "SLURM_JOB_GPUS", "GPU_DEVICE_ORDINAL", "CUDA_VISIBLE_DEVICES")
"""Variables that say which devices of a node an allocation holds; the first that is there counts."""


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="onnode")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--scratch", type=Path)
    parser.add_argument("--simulated", default="")
    parser.add_argument("--over", type=Path)
    parser.add_argument("--warden", type=int, nargs=4, metavar=("AGENT", "TICKS", "STEP", "TICKS"))
    given = parser.parse_args(arguments)
    if given.warden:
        agent, agent_ticks, step, step_ticks = given.warden
        Warden(given.folder, given.over, Process(agent, agent_ticks), Process(step, step_ticks)).run()
        return
    become_agent(given.folder, given.scratch, given.simulated)


def become_agent(folder: Path, scratch: Path | None, simulated: str) -> None:
    """Wait for the key of this node, and go on as its agent. Exits where no key comes.

    Args:
        simulated: model of devices that are simulated, as many as the allocation holds; '': they are real.
    """
    said = dict(os.environ)
    job, number = said.get("SLURM_JOB_ID", ""), said.get("SLURM_NODEID", "0")
    if not job.isdecimal() or not number.isdecimal():
        sys.exit("this is no allocation of Slurm: SLURM_JOB_ID is not set")
    key = key_file(folder, job, int(number))
    if not _waited(key):
        sys.exit(f"no key for this node came within {KEY_WAIT_S:.0f} s: {key}")
    place = scratch or Path(said.get("TMPDIR") or "/tmp")  # noqa: S108
    place.mkdir(parents=True, exist_ok=True)
    own = Path(tempfile.mkdtemp(prefix=f"penstock-{os.geteuid()}-{job}-{number}-", dir=place))
    check(own)  # the warden kills what is written down there
    _watched(own, over_mark(folder, job, int(number)))
    words = [str(key), "--data", str(own), "--shared", str(folder), "--foreground"]
    words += ["--ports", ports_of(int(job), int(number)), *offered(said, _seen, simulated)]
    starts.become("penstock.joining", *words, variables=without_slurm(said))


def _waited(key: Path) -> bool:
    deadline = time.monotonic() + KEY_WAIT_S
    while not key.exists():
        if time.monotonic() > deadline:
            return False
        with contextlib.suppress(OSError):
            os.listdir(key.parent)  # a network file system looks again
        time.sleep(LOOK_S)
    return True


def ports_of(job: int, number: int) -> str:
    """Return the rendezvous ports of a node: allocations may share a machine."""
    first = PORTS_FIRST + (job * 7 + number) % PORT_RANGES * PORTS_EACH
    return f"{first}-{first + PORTS_EACH - 1}"


def _seen() -> list[int]:
    """Return the indexes of the devices that this process sees."""
    from penstock.devices.installed import discovered

    return [device.index for device in discovered().devices]


def offered(said: Mapping[str, str], seen: Callable[[], Sequence[int]], simulated: str = "") -> list[str]:
    """Return what the node offers, as options: what the allocation holds of it.

    Args:
        said: Slurm's variables.
        seen: returns the indexes of the devices that are seen here: all devices of the machine, or, where Slurm lets
            an allocation see its own alone, those.
        simulated: the model of simulated devices in their place.
    """
    words: list[str] = []
    cpus, each = said.get("SLURM_CPUS_ON_NODE", ""), said.get("SLURM_MEM_PER_CPU", "")
    memory = said.get("SLURM_MEM_PER_NODE", "")
    if cpus.isdecimal() and int(cpus):
        words += ["--cpus", cpus]
    if memory.isdecimal() and int(memory):
        words += ["--memory", f"{memory}MiB"]
    elif each.isdecimal() and int(each) and cpus.isdecimal():
        words += ["--memory", f"{int(each) * int(cpus)}MiB"]
    held = held_devices(said)
    if simulated and held:
        return [*words, "--simulated", f"{len(held)}:{simulated}"]
    there = seen() if held else []
    if len(there) == len(held):
        held = sorted(there)
    return [*words, "--devices", ",".join(str(index) for index in held if index in there)]


def held_devices(said: Mapping[str, str]) -> list[int]:
    """Return the devices of the node that the allocation holds, as Slurm numbers them; none where it asked for none."""
    text = next((said[name] for name in HELD if said.get(name)), "")
    return sorted({int(word) for word in text.split(",") if word.strip().isdecimal()})


def without_slurm(said: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of the agent: that of the allocation without Slurm's variables.

    Boxes are sessions, for a group of ours would lie outside of those by which Slurm limits and ends the allocation;
    their memory has groups within Slurm's where that is possible (`processes/memory.py`).
    """
    kept = {name: value for name, value in said.items() if name in KEPT_OF_SLURM or not name.startswith(DROPPED)}
    return {**kept, KIND_VARIABLE: "sessions"}


def _watched(own: Path, over: Path) -> None:
    """Start the warden of this process, which becomes the agent, in a session of its own and with no parent here."""
    step = os.getppid()
    numbers = [os.getpid(), procfs.start_ticks(os.getpid()) or 0, step, procfs.start_ticks(step) or 0]
    if os.fork():
        os.wait()
        return
    with open(own / "warden.log", "ab") as output:
        words = (str(own), f"--over={over}", "--warden", *map(str, numbers))
        starts.begin("penstock.engines.slurm.pilot.onnode", *words, output=output, variables=without_slurm(os.environ))
    os._exit(0)


class Warden:
    """Looks after a node until its agent has gone and none of its processes is left.

    Args:
        own: the agent's data folder.
        over: made once nothing is left: the server then knows that the node's jobs may start elsewhere.
        agent: the process that became the agent.
        step: Slurm's process that started it.
    """

    def __init__(self, own: Path, over: Path, agent: Process, step: Process) -> None:
        self._own, self._over, self._agent, self._step = own, over, agent, step
        self._left: list[Box] | None = None

    def run(self) -> None:
        while self._agent_lives():
            if self._step.pid > 1 and not procfs.alive(self._step.pid, self._step.ticks):
                self._end_agent()
            time.sleep(WARDEN_S)
        while not self._nothing_left():
            time.sleep(LOOK_S)
        with contextlib.suppress(OSError):  # the server has cleared up
            self._over.touch()
        shutil.rmtree(self._own, ignore_errors=True)

    def _agent_lives(self) -> bool:
        return procfs.alive(self._agent.pid, self._agent.ticks) or self._holder() is not None

    def _folders(self) -> list[Path]:
        return [path for path in (self._own / "nodes").glob("*") if path.is_dir()]

    def _holder(self) -> int | None:
        """Return the process of the agent that holds the node's lock: its worker lives on when the first has died."""
        for folder in self._folders():
            with contextlib.suppress(OSError), (folder / "agent.lock").open("rb+") as lock:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except OSError:
                    with contextlib.suppress(OSError, ValueError):
                        return int((folder / "agent.pid").read_text(encoding="ascii"))
                    return 0
        return None

    def _end_agent(self) -> None:
        """Ask the agent to leave, as Slurm would; kill what does not."""
        for how, wait_s in ((signal.SIGTERM, END_WAIT_S), (signal.SIGKILL, WARDEN_S)):
            deadline = time.monotonic() + wait_s
            pid = self._holder() or (self._agent.pid if procfs.alive(self._agent.pid, self._agent.ticks) else 0)
            if pid:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, how)
            while self._agent_lives() and time.monotonic() < deadline:
                time.sleep(LOOK_S)

    def _nothing_left(self) -> bool:
        """Kill what is left of the replicas; return whether nothing is."""
        empty = [kill_inside(box) for box in self._boxes()]
        if not all(empty):
            return False
        for box in self._boxes():
            box.remove()
        return True

    def _boxes(self) -> list[Box]:
        """Return the boxes of all replicas that were not over: always the same, for they count their looks."""
        if self._left is None:
            self._left = []
            for folder in self._folders():
                with contextlib.suppress(OSError, ValueError, KeyError, msgspec.MsgspecError):
                    parent = json.loads((folder / "agent.json").read_bytes())["box_parent"]
                    sessions = SessionContainment(parent, groups_of_slurm())
                    for known in replay(folder / "journal").values():
                        leader = Process(known.pid, known.ticks) if known.pid else None
                        self._left.append(sessions.box(f"{folder.name}.{known.key}", known.limits, leader))
        return self._left


if __name__ == "__main__":
    main()
