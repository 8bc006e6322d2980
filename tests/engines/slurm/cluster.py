"""A Slurm of the tests' own: munged, slurmctld, slurmds, and slurmdbd on a MariaDB, in one folder on loopback ports.

Its programs are those of the system. Where they are missing a test is skipped, with the reason; in CI (CI=true) it
fails instead. Everything runs in the foreground of its process here, and is ended by that process.
"""

import contextlib
import ctypes
import getpass
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from tests.sharedservice import SharedService

START_WAIT_S = 60.0
PR_SET_PDEATHSIG = 1
NODES = 4
CLUSTER = "shadow"
DAEMONS = ("munged", "slurmctld", "slurmd")
ACCOUNTING = ("slurmdbd", "mariadbd", "mariadb-install-db")
PACKAGES = "slurmctld slurmd slurm-client munge slurmdbd mariadb-server"
SEARCHED = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"

CONF = """\
ClusterName={cluster}
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={control}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SwitchType=switch/none
ReturnToService=2
SlurmdParameters=config_overrides
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_interval=2,bf_interval=2,bf_window=1440
PriorityType=priority/basic
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
GresTypes=gpu
KillWait=2
MinJobAge={min_job_age}
MaxJobCount=20000
MaxArraySize=10001
JobRequeue=1
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
InactiveLimit=0
SlurmctldTimeout=10
SlurmdTimeout=60
MessageTimeout=20
{accounting}
NodeName=n[1-{nodes}] NodeHostname={host} NodeAddr=127.0.0.1 Port={first}-{last} CPUs={cpus} RealMemory={memory} \
Gres=gpu:a100:4 Feature=fast,amd State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=NO PriorityTier=1
PartitionName=urgent Nodes=ALL MaxTime=INFINITE State=UP OverSubscribe=NO PriorityTier=10 PreemptMode=REQUEUE
"""
ACCOUNTED = """\
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={dbd}
AccountingStoragePass={folder}/munge/socket
AccountingStorageTRES=gres/gpu,gres/gpu:a100
AccountingStoreFlags=job_comment
JobAcctGatherType=jobacct_gather/none
"""
DBD = """\
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
DbdHost={host}
DbdAddr=127.0.0.1
DbdPort={dbd}
SlurmUser={user}
LogFile={folder}/slurmdbd.log
PidFile={folder}/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser={user}
StorageLoc=slurm_acct
"""
DATABASE = (
    "--no-defaults", "--skip-networking", "--innodb-buffer-pool-size=32M", "--innodb-log-file-size=16M",
    "--innodb-flush-log-at-trx-commit=0", "--innodb-doublewrite=0", "--skip-name-resolve", "--performance-schema=off",
    "--innodb-lock-wait-timeout=900", "--skip-log-bin",
)  # fmt: skip


def need(programs: Sequence[str] = (*DAEMONS, *ACCOUNTING)) -> None:
    """Skip the test that asks where a program is missing; in CI it fails."""
    missing = [name for name in programs if shutil.which(name, path=SEARCHED) is None]
    if missing or os.geteuid() != 0:
        missed = f"{', '.join(missing)} missing: apt-get install {PACKAGES}"
        reason = missed if missing else "a Slurm of the tests' own is run by root"
        assert os.environ.get("CI") != "true", reason
        pytest.skip(reason)


def _die_with_parent() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def free_ports(count: int) -> int:
    """Return the first of so many ports in a row that nobody listens on, below those that the kernel gives out."""
    for _ in range(200):
        first = 20_000 + secrets.randbelow(10_000)
        with contextlib.ExitStack() as held:
            try:
                for port in range(first, first + count):
                    held.enter_context(contextlib.closing(socket.socket())).bind(("127.0.0.1", port))
            except OSError:
                continue
            return first
    raise AssertionError("no free ports")


def until(said: str, true: Callable[[], bool], *, wait_s: float = START_WAIT_S, every_s: float = 0.05) -> None:
    """Wait until something is so; `said` names it where it never is."""
    deadline = time.monotonic() + wait_s
    while not true():
        assert time.monotonic() < deadline, f"waited {wait_s:.0f} s for {said}"
        time.sleep(every_s)


class SlurmCluster:
    """One cluster. Its parts may be killed and started again by name: `slurmctld`, `slurmdbd`, `n1` and so on.

    Args:
        accounting: with slurmdbd, so that there is a `sacct`.
        min_job_age_s: for how long slurmctld keeps ended jobs.
        cpus: of each node, each with 1,000 MB of memory.
        groups: the memory of jobs is held by control groups of version 1.
    """

    def __init__(
        self, *, nodes: int = NODES, accounting: bool = True, min_job_age_s: int = 300, cpus: int = 4,
        groups: bool = False,
    ) -> None:  # fmt: skip
        need((*DAEMONS, *ACCOUNTING) if accounting else DAEMONS)
        self.folder = Path(tempfile.mkdtemp(prefix="penstock-slurm-"))
        self.nodes = [f"n{number}" for number in range(1, nodes + 1)]
        self.accounting = accounting
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        first = free_ports(nodes + 2)
        user, host = getpass.getuser(), socket.gethostname().split(".")[0]
        known = {"folder": self.folder, "user": user, "host": host, "cluster": CLUSTER, "dbd": first + 1}
        accounted = ACCOUNTED.format(**known) if accounting else "AccountingStorageType=accounting_storage/none"
        conf = CONF.format(
            **known, control=first, first=first + 2, last=first + 1 + nodes, nodes=nodes, accounting=accounted,
            min_job_age=min_job_age_s, cpus=cpus, memory=1000 * cpus,
        )  # fmt: skip
        if groups:
            conf = conf.replace("TaskPlugin=task/none", "TaskPlugin=task/cgroup")
        for name in ("munge", "state", "spool", "work"):
            (self.folder / name).mkdir()
        for name in self.nodes:
            (self.folder / "spool" / name).mkdir()
        self.folder.chmod(0o755)
        self._write("slurm.conf", conf)
        self._write("gres.conf", f"Name=gpu Type=a100 File={self.folder}/gpu[0-3]\n")
        self._write("cgroup.conf", "CgroupPlugin=cgroup/v1\n" + "ConstrainRAMSpace=yes\n" * groups)
        self._write("slurmdbd.conf", DBD.format(**known), 0o600)
        for number in range(4):
            (self.folder / f"gpu{number}").touch()
        key = self.folder / "munge" / "key"
        key.write_bytes(secrets.token_bytes(128))
        key.chmod(0o400)

    def _write(self, name: str, text: str, mode: int = 0o644) -> None:
        path = self.folder / name
        path.write_text(text)
        path.chmod(mode)

    @property
    def variables(self) -> dict[str, str]:
        """What a command needs to find this cluster."""
        return {"SLURM_CONF": str(self.folder / "slurm.conf")}

    @property
    def _environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "SQUEUE", "SACCT"))}
        return {**kept, "PATH": SEARCHED, **self.variables, "MYSQL_UNIX_PORT": str(self.folder / "database.socket")}

    # Its parts.

    def start(self) -> None:
        munge = self.folder / "munge"
        options = [f"--{name}={munge / name}" for name in ("socket", "pid-file", "log-file", "seed-file")]
        self._spawn("munged", ["munged", "-F", "--force", f"--key-file={munge / 'key'}", "--num-threads=2", *options])
        until("munged", (munge / "socket").exists)
        if self.accounting:
            self._start_accounting()
        self.start_part("slurmctld")
        for name in self.nodes:
            self.start_part(name)
        until("nodes", lambda: self._answered(["sinfo", "-h", "-t", "idle", "-o", "%D"]) == str(len(self.nodes)))

    def _start_accounting(self) -> None:
        data, user = self.folder / "database", getpass.getuser()
        log = self.folder / "database.log"
        self._run(["mariadb-install-db", *DATABASE, f"--datadir={data}", "--auth-root-authentication-method=socket",
                   f"--user={user}", f"--auth-root-socket-user={user}", "--skip-test-db"])  # fmt: skip
        self._spawn(
            "database",
            ["mariadbd", *DATABASE, f"--datadir={data}", f"--socket={self.folder}/database.socket", f"--user={user}",
             f"--pid-file={self.folder}/database.pid", f"--log-error={log}"],
        )  # fmt: skip
        until("the database", (self.folder / "database.socket").exists)
        if user != "root":
            self.query(f"CREATE USER IF NOT EXISTS '{user}'@'localhost'; GRANT ALL ON *.* TO '{user}'@'localhost'")
        self.start_part("slurmdbd")
        self._run(["sacctmgr", "-i", "add", "cluster", CLUSTER])

    def start_part(self, name: str) -> None:
        """Start slurmctld, slurmdbd or a node's slurmd, and wait until it answers."""
        if name == "slurmctld":
            self._spawn(name, ["slurmctld", "-D"])
            until(name, lambda: "UP" in self._answered(["scontrol", "ping"]))
        elif name == "slurmdbd":
            self._spawn(name, ["slurmdbd", "-D"])
            until(name, lambda: self._code(["sacctmgr", "-n", "show", "cluster"]) == 0)
        else:
            self._spawn(name, ["slurmd", "-D", "-N", name])

    def kill_part(self, name: str, how: signal.Signals = signal.SIGKILL) -> None:
        process = self._processes.pop(name)
        process.send_signal(how)
        process.wait(60)

    def _spawn(self, name: str, command: list[str]) -> None:
        with (self.folder / f"{name}.out").open("ab") as log, warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of preexec_fn beside threads
            self._processes[name] = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=_die_with_parent,  # noqa: PLW1509 - a test run that is killed leaves no cluster behind
                cwd=self.folder,
                env=self._environment,
            )

    def said(self) -> str:
        """Return the last words of all parts."""
        logs = sorted((*self.folder.glob("*.log"), *self.folder.glob("*.out")))
        return "\n".join(f"{path.name}: {path.read_text(errors='replace')[-1500:]}" for path in logs)

    def remove(self) -> None:
        """End all parts, the newest first, and what their jobs left running."""
        if "slurmctld" in self._processes:
            with contextlib.suppress(subprocess.SubprocessError):
                self._code(["scancel", "-u", getpass.getuser(), "--full", "-s", "KILL"])
        for name in reversed(tuple(self._processes)):
            process = self._processes[name]
            process.send_signal(signal.SIGKILL if name.startswith("n") or name == "slurmctld" else signal.SIGTERM)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._processes.clear()
        self._end_steps()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _end_steps(self) -> None:
        """Kill the processes of jobs until none is left: each has this cluster's configuration in its environment."""
        deadline = time.monotonic() + START_WAIT_S
        while found := self._steps():
            for process in found:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            assert time.monotonic() < deadline, f"processes of {self.folder} do not end: {found}"
            time.sleep(0.05)

    def _steps(self) -> list[int]:
        mark, found = f"SLURM_CONF={self.folder}/slurm.conf".encode(), []
        for path in Path("/proc").glob("[0-9]*/environ"):
            with contextlib.suppress(OSError):
                if mark in path.read_bytes().split(b"\0") and int(path.parent.name) != os.getpid():
                    found.append(int(path.parent.name))
        return found

    # What is asked of it.

    def run(self, *command: str, input: str | None = None) -> str:  # noqa: A002 - as of subprocess.run
        """Run one of Slurm's commands here, and return what it printed."""
        return self._run(list(command), input)

    def _run(self, command: list[str], given: str | None = None) -> str:
        done = subprocess.run(
            command, capture_output=True, text=True, cwd=self.folder / "work", env=self._environment, input=given
        )
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}\n{self.said()}"
        return done.stdout

    def code(self, *command: str) -> int:
        """Run a command here that may fail, and return how it ended."""
        return self._code(list(command))

    def _code(self, command: list[str]) -> int:
        return subprocess.run(command, capture_output=True, env=self._environment, timeout=60).returncode

    def _answered(self, command: list[str]) -> str:
        done = subprocess.run(command, capture_output=True, text=True, env=self._environment)
        return done.stdout.strip()

    def submit(self, script: str, *options: str) -> int:
        """Submit a script of the shell, and return the job's id."""
        return int(self.run("sbatch", "--parsable", *options, input=f"#!/bin/sh\n{script}\n").split(";")[0])

    def states(self) -> Mapping[str, str]:
        """Return the states that squeue shows, each element of an array by itself."""
        lines = self.run("squeue", "-h", "-r", "-t", "all", "-o", "%i %T").splitlines()
        return dict(line.split() for line in lines)

    def empty(self) -> None:
        """Cancel all jobs, and wait until none is left running."""
        self._code(["scancel", "-u", getpass.getuser()])
        self._code(["scontrol", "update", "node=ALL", "state=resume"])
        over = ("CANCELLED", "COMPLETED", "FAILED", "TIMEOUT", "PREEMPTED", "NODE_FAIL")
        until("an empty queue", lambda: all(state in over for state in self.states().values()))

    def resume(self) -> list[str]:
        """Take nodes into service again that Slurm has drained, as its administrator would, and return them.

        A slurmctld that is killed right after it has begun a batch job begins it again: that slurmd drains its node for
        a "Duplicate jobid".
        """
        drained = sorted(set(self._answered(["sinfo", "-h", "-N", "-t", "drain", "-o", "%N"]).split()))
        for name in drained:
            self._code(["scontrol", "update", f"node={name}", "state=resume"])
        return drained

    def times(self, job: int) -> tuple[int, ...]:
        """Return when a job was submitted, started and ended (seconds since 1970)."""
        columns = "SubmitTime:20,StartTime:20,EndTime:20"
        command = ["env", "TZ=UTC", "SLURM_TIME_FORMAT=%s", "squeue", "-h", "-t", "all", "-j", str(job), "-O", columns]
        return tuple(map(int, self._run(command).split()))

    def wait(self, job: int | str, state: str, *, wait_s: float = 60.0) -> None:
        """Wait until squeue shows a job in this state."""
        until(f"job {job} {state}", lambda: self.states().get(str(job)) == state, wait_s=wait_s)

    def query(self, statement: str) -> str:
        """Run a statement on the database."""
        return self.run("mariadb", "-N", "-B", "-S", str(self.folder / "database.socket"), "-e", statement)


_shared = SharedService(SlurmCluster)
shared, end_shared = _shared.get, _shared.end


@contextlib.contextmanager
def own(**settings: int) -> Iterator[SlurmCluster]:
    """Run a cluster whose parts may be killed."""
    made = SlurmCluster(**settings)  # type: ignore[arg-type]
    try:
        made.start()
        yield made
    finally:
        made.remove()
