"""Starting one replica: its environment, and the gate that makes "started" mean exactly one thing.

The first process is a small shell that waits for a line before it becomes the program. The agent writes that line
only after it has noted the process in its journal; when the agent dies before, the gate sees the end of the pipe and
leaves without having run anything. So after a crash "noted" and "ran" cannot be confused. The shell puts itself into
its control groups first; no Python process is ever forked for a job.
"""

import contextlib
import os
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from penstock import starts
from penstock.core.messages.orders import StartReplica
from penstock.core.messages.reports import ReplicaKey
from penstock.core.model.resources import Device, DeviceAsk
from penstock.devices.installed import visibility
from penstock.diskroom import is_nearly_full
from penstock.engines.processes import account_files, run_as
from penstock.engines.processes.accounts import UserAccount, account_of, hand_over, private
from penstock.engines.processes.batches import batch_variables, make_told
from penstock.engines.processes.jobfolders import prepare_folder
from penstock.engines.processes.paths import DataFolder
from penstock.engines.processes.procfs import REPLICA_MARK
from penstock.privatefiles import PASSED

NEVER_RAN_CODE = 126
KEEPER_KILLED = "the process that keeps its container was killed: the exit status of the program is not known"
NEVER_RAN_MAX = 2_000
"""Characters of the reason."""

_JAX_PART = "XLA_PYTHON_CLIENT_MEM_FRACTION"
_GATE = """
ulimit -S -c 0
for file in $PENSTOCK_GATES; do echo $$ > "$file" || exit 126; done
read -r go <&3 || { : > "$PENSTOCK_NEVER_RAN"; exit 126; }
exec 3<&-
cd "$PENSTOCK_WORKDIR" || exit 126
unset go file PENSTOCK_GATES PENSTOCK_NEVER_RAN PENSTOCK_WORKDIR
exec "$@"
"""

_KEPT = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "SHELL", "TMPDIR", "LD_LIBRARY_PATH")
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")
_DEFAULTED = sorted(signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP})
"""A signal ignored by the server's parent stays ignored in all children; Python itself ignores some."""
_SHELL = starts.tool("sh") or "/bin/sh"


class StartGate:
    """A process that waits to become the program. `open` lets it; `close` without it makes it leave."""

    def __init__(self, pid: int, write_end: int, never_ran: Path | None) -> None:
        self.pid = pid
        self._write_end, self._never_ran = write_end, never_ran
        """`never_ran` is there already, where the gate could not be sure to make it."""

    def open(self) -> None:
        if self._never_ran is not None:
            with contextlib.suppress(OSError):
                self._never_ran.unlink()  # root's: the job's folder
        try:
            os.write(self._write_end, b"\n")
        except BrokenPipeError:
            pass  # killed while it waited: its exit is reported like any other
        finally:
            self.close()

    def close(self) -> None:
        os.close(self._write_end)


def spawn(
    order: StartReplica,
    devices: tuple[Device, ...],
    data: DataFolder,
    gates: tuple[str, ...],
    mark: str,
    variables: Mapping[str, str] | None = None,
) -> StartGate:
    """Start the gate of a replica in a session of its own.

    Args:
        variables: further ones of its environment.
    Raises: OSError when its folder, its output or the process cannot be made.
    """
    key, job_id = order.key, order.key.job_id
    account = account_of(order.account) if order.account else None
    output = open_output(data, order)
    try:
        environment = replica_environment(order, devices, data, os.environ, account)
        environment |= {**(variables or {}), REPLICA_MARK: mark}
        checkpoints = str(data.checkpoints(job_id))
        own = str(data.work(job_id) if account else data.job(job_id))
        gated = Gated(
            _command(order, len(devices)), environment, order.workdir or own, checkpoints, data.never_ran(key), gates
        )
        handed = None
        if order.container:
            from penstock.engines.containers.start import in_container

            gated, account, handed = in_container(order, devices, data, environment, account, gates)
        return gate(gated, account, output, handed)
    finally:
        os.close(output)


def open_output(data: DataFolder, order: StartReplica) -> int:
    """Make the folder of a replica's job, and return a descriptor that adds to the replica's output.

    Raises: OSError.
    """
    key = order.key
    account = account_of(order.account) if order.account else None
    private(data.job(key.job_id).parent, PASSED)
    prepare_folder(data, order)
    private(data.job(key.job_id), PASSED if account else 0o700)
    for folder in (data.checkpoints(key.job_id), data.work(key.job_id)):
        folder.mkdir(0o700, exist_ok=True)  # root's: the job's folder
    if order.batch is not None:
        make_told(data, key, passed=account is not None)
    if account is None:
        return account_files.kept_file(data.output(key), os.O_WRONLY | os.O_APPEND, mode=0o640)
    hand_over(data, key, account)  # and the output, so that /dev/stderr can be opened
    return account_files.kept_file(data.output(key), os.O_WRONLY | os.O_APPEND, account.uid, account.gid)


class Gated(NamedTuple):
    """What runs behind a gate."""

    command: Sequence[str]
    environment: Mapping[str, str]
    workdir: str
    readable: str
    """A folder that an account must be able to read, else nothing runs."""
    never_ran: Path
    """Is there while the gate is closed, and after it where the agent died before: made beforehand, on a full disk it
    could not be."""
    gates: Sequence[str]
    """Of its box."""


def gate(gated: Gated, account: UserAccount | None, output: int, handed: Mapping[str, str] | None = None) -> StartGate:
    """Start the gate of a program in a session of its own, which runs as an account, or as the agent does.

    Args:
        output: descriptor of what it prints; stays open here.
        handed: variables that it finds in descriptor 4, where it runs as the agent does.
    Raises: OSError.
    """
    memory, made = None, None
    if is_nearly_full(gated.never_ran.parent):
        made = gated.never_ran
        flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        os.close(os.open(made, flags, 0o600))  # root's: the job's folder, or the node's
    read_end, write_end = os.pipe()
    try:
        if account is None:
            words, given = _shell_gate(gated)
            memory = _in_memory(handed) if handed is not None else None
        else:
            memory = _in_memory(gated.environment)
            words, given = _account_gate(gated, account)
        environ = [(os.POSIX_SPAWN_DUP2, memory, 4)] if memory is not None else []
        pid = os.posix_spawn(
            words[0],
            words,
            given,
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_DUP2, output, 1),
                (os.POSIX_SPAWN_DUP2, output, 2),
                (os.POSIX_SPAWN_DUP2, read_end, 3),
                *environ,
            ],
            setsid=True,
            setsigmask=[],
            setsigdef=_DEFAULTED,
        )
    except OSError:
        os.close(write_end)
        raise
    finally:
        for descriptor in (read_end, memory):
            if descriptor is not None:
                os.close(descriptor)
    return StartGate(pid, write_end, made)


def _command(order: StartReplica, devices: int) -> tuple[str, ...]:
    """Return the words of the first process: those of the job, or a place of its Ray cluster, which runs them."""
    if not order.runtime:
        return order.command
    host, script = order.ask.host, Path(__file__).with_name("ray_place.py")
    cpus, memory, store = max(1, host.cpu_milli // 1000), host.memory_bytes, order.object_store_bytes
    asked = (f"--cpus={cpus}", f"--devices={devices}", f"--memory={memory}", f"--store={store}")
    return (sys.executable, "-I", "-S", str(script), *asked, "--", *order.command)


def _shell_gate(gated: Gated) -> tuple[list[str], dict[str, str]]:
    """Return the command and the environment of the gate of a program that runs as the agent does."""
    told = {
        "PENSTOCK_GATES": " ".join(gated.gates),
        "PENSTOCK_NEVER_RAN": str(gated.never_ran),
        "PENSTOCK_WORKDIR": gated.workdir,
    }
    return [_SHELL, "-c", _GATE, "penstock", *gated.command], {**gated.environment, **told}


def _account_gate(gated: Gated, account: UserAccount) -> tuple[list[str], dict[str, str]]:
    """Return the command and the environment of the gate of a program that runs as an account: see `run_as.py`."""
    who = [account.name, str(account.gid), str(account.uid), gated.workdir, gated.readable, str(gated.never_ran)]
    words = [sys.executable, "-I", "-S", run_as.__file__, *who]
    return [*words, str(len(gated.gates)), *gated.gates, *gated.command], {"LANG": os.environ.get("LANG", "C.UTF-8")}


def _in_memory(environment: Mapping[str, str]) -> int:
    """Return a descriptor of an environment, which only its holders can read."""
    memory = os.memfd_create("environment")
    data = b"".join(os.fsencode(f"{name}={value}") + b"\0" for name, value in environment.items())
    with os.fdopen(memory, "wb", closefd=False) as file:
        file.write(data)
    os.lseek(memory, 0, os.SEEK_SET)
    return memory


def replica_environment(
    order: StartReplica,
    devices: tuple[Device, ...],
    data: DataFolder,
    base: Mapping[str, str],
    account: UserAccount | None = None,
) -> dict[str, str]:
    """Return the environment of a replica: a little of the agent's, the job's own, then what Penstock sets."""
    environment = base_environment(base, account)
    threads = str(max(1, order.ask.host.cpu_milli // 1000))
    environment |= dict.fromkeys(_THREADS, threads)
    environment |= dict(order.env)
    key = order.key
    environment |= visibility(devices)
    environment |= _memory_limits(order.ask.devices, devices, environment)
    environment |= {
        "RANK": str(key.rank),
        "WORLD_SIZE": str(order.world_size),
        "LOCAL_RANK": str(order.local_rank),
        "LOCAL_WORLD_SIZE": str(order.local_world_size),
        "NODE_RANK": str(order.node_rank),
        "GROUP_RANK": str(order.node_rank),
        "MASTER_ADDR": order.master_address,
        "MASTER_PORT": str(order.master_port),
        "PENSTOCK_JOB_ID": str(key.job_id),
        "PENSTOCK_JOB_NAME": order.name,
        "PENSTOCK_ATTEMPT": str(key.attempt),
        "PENSTOCK_NODES": ",".join(order.node_names),
        "PENSTOCK_CHECKPOINT_DIR": str(data.checkpoints(key.job_id)),
        "PENSTOCK_SCRATCH_DIR": str(data.work(key.job_id)),
        "PENSTOCK_CHECKPOINT_INTERVAL_S": f"{order.checkpoint.interval_ms / 1000:g}",
        "PENSTOCK_GRACE_S": f"{order.grace_ms / 1000:g}",
        "PENSTOCK_REPORT_FILE": str(data.report(key)),
        **batch_variables(data, key, order.batch),
    }
    if order.checkpoint.request_signal:
        environment["PENSTOCK_CHECKPOINT_SIGNAL"] = order.checkpoint.request_signal
    if order.array_id is not None:
        environment |= {"PENSTOCK_ARRAY_ID": str(order.array_id), "PENSTOCK_ARRAY_INDEX": str(order.array_index)}
    return environment


def base_environment(base: Mapping[str, str], account: UserAccount | None) -> dict[str, str]:
    """Return the little of the agent's environment that any program of a job gets."""
    environment = {name: base[name] for name in _KEPT if name in base}
    if account is not None:
        environment.pop("TMPDIR", None)
        environment |= account.variables
    return environment


def why_unknown(data: DataFolder, key: ReplicaKey, node: str = "") -> str:
    """Return why a replica has no exit status of its program; '' where it has one: it left with `NEVER_RAN_CODE`, or
    was killed on `node`."""
    if node:
        return KEEPER_KILLED if data.keeper(node, key).exists() else ""  # root's: the node's folder
    try:
        said = data.never_ran(key).read_text(encoding="utf-8", errors="replace")  # root's: the job's folder
    except OSError:
        return ""
    return said[:NEVER_RAN_MAX] or "its agent died before it had started"


def memory_limit_bytes(ask: DeviceAsk | None, devices: Sequence[Device]) -> int:
    """Return the memory of its device that a replica with a fraction may use; 0 where nothing of its kind limits it."""
    if ask is None or ask.whole or ask.profile or not devices or not devices[0].memory_bytes:
        return 0
    return ask.memory_of(devices[0])


def _memory_limits(ask: DeviceAsk | None, devices: Sequence[Device], known: Mapping[str, str]) -> dict[str, str]:
    """Return the variables by which a program with a part of a device limits its framework; none for whole devices.

    JAX reads its own at the start; a job may ask for less there.
    """
    limit = memory_limit_bytes(ask, devices)
    if not limit:
        return {}
    part = min(1.0, limit / devices[0].memory_bytes)
    with contextlib.suppress(ValueError):
        part = min(part, float(known.get(_JAX_PART, "1")))
    return {"PENSTOCK_DEVICE_MEMORY_BYTES": str(limit), _JAX_PART: f"{part:.4f}"}


def port_is_free(address: str, port: int) -> bool:
    """Return whether a rendezvous port of this node has no listener outside Penstock."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError:
            return False
    return True
