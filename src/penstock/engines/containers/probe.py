"""Which runtimes work on this node: found out by running /bin/true in each, with the flags that this machine needs.

What is tried after a failure follows from what the runtime says: see `_next`. Nothing is pulled for it: the folder that
is run has the machine's own programs mounted into it, read-only.
"""

import json
import os
import re
import resource
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec
from msgspec.structs import replace

from penstock import starts
from penstock.core.model.containers import Mount, RuntimeKind
from penstock.engines.containers.commands import KEPT, Container, Runtime, keeper_words, plan, prefix
from penstock.engines.containers.roots import FILES, FOLDERS

TRIED: tuple[RuntimeKind, ...] = ("podman", "charliecloud", "apptainer", "bubblewrap")
TRIES_MAX = 8
WITHOUT_QUEUES = ("--ipc=private", "--volume=/dev/shm:/dev/shm")
"""Of a machine without POSIX message queues."""
NPROC_PARTS = (1, 2, 4)
"""Of the limit of processes: what starts containers may have lowered its own."""
PROGRAMS = {
    "podman": "podman",
    "apptainer": "apptainer",
    "charliecloud": "ch-run",
    "bubblewrap": "bwrap",
}
_TRUE = ("/bin/true",)
_PARTS = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
CDI_FOLDERS = (Path("/etc/cdi"), Path("/var/run/cdi"))
DESCRIPTION_MAX = 4 * 2**20
"""Characters of a description that are read: `nvidia-ctk` writes the kind last, after all devices."""
_KIND = re.compile(r"""^\s*"?kind"?\s*:\s*"?([\w./-]+)"?""", re.MULTILINE)


class Ran(NamedTuple):
    """How a trial ended: its exit code, None where it was killed, and what it printed."""

    code: int | None
    text: str


class Run(Protocol):
    def __call__(self, words: Sequence[str], *, agent: bool = False) -> Ran:
        """Run a command in a box of its own: as the job's account, or as the agent does."""
        ...


def probed(run: Run, folder: Path, *, root: bool, grouped: bool) -> list[Runtime]:
    """Return the runtimes that are installed here, working ones first; the others with their problem.

    Args:
        run: runs a command in a box of its own.
        folder: for the trial; its own for each account.
        root: the trials run as root.
        grouped: boxes are control groups.
    """
    found = []
    for kind in TRIED:
        program = starts.tool(PROGRAMS[kind])
        if program is None:
            continue
        first = Runtime(kind, program, held="below" if root and kind in KEPT else "inside", rootless=not root)
        found.append(_tried(first, run, _trial_folder(folder), grouped=grouped))
    return sorted(found, key=lambda one: bool(one.problem))


def _tried(runtime: Runtime, run: Run, folder: Path, *, grouped: bool) -> Runtime:
    """Return a runtime with the options with which it works, or with its problem."""
    version = re.search(r"\d+(\.\d+)+", run([runtime.program, "--version"]).text)
    runtime = replace(runtime, version=version[0] if version else "", cdi=described_devices())
    problem = ""
    for _ in range(TRIES_MAX):
        ended = _run_true(runtime, run, folder, grouped=grouped)
        if ended.code == 0:
            return runtime
        problem = problem or ended.text.strip()[-300:] or f"exit {ended.code}"
        other = _next(runtime, ended.text)
        if other is None:
            break
        runtime = other
    return replace(runtime, problem=problem)


def _run_true(runtime: Runtime, run: Run, folder: Path, *, grouped: bool) -> Ran:
    mounts = tuple(Mount(str(path), f"/{path.name}", read_only=True) for path in _real_parts())
    name = f"penstock-trial-{os.getpid()}-{runtime.kind}"
    environment, pid, conmon = (str(folder.parent / f"{name}.{one}") for one in ("environment", "pid", "conmon"))
    trial = Container(name, "trial", str(folder), _TRUE, "/", mounts, rootfs=True)
    trial = replace(trial, environment_file=environment, pid_file=pid, conmon_file=conmon)
    if runtime.kind == "charliecloud":
        trial = replace(trial, root=str(folder))
    if runtime.kind not in KEPT:
        return run([*prefix(runtime, trial, inside=none if trial.root else _listing(folder)), *_TRUE])
    file, unknown, output = (folder.parent / f"{name}.{what}" for what in ("json", "unknown", "output"))
    for left in (unknown, output):
        left.unlink(missing_ok=True)
    way = plan(runtime, trial, file=str(file), unknown=str(unknown), grouped=grouped, output=str(output))
    file.write_text(json.dumps(way), encoding="utf-8")
    ended = run(keeper_words(str(file)), agent=True)
    said = [one.read_text(encoding="utf-8", errors="replace") for one in (unknown, output) if one.exists()]
    for left in (unknown, output):
        left.unlink(missing_ok=True)
    return Ran(ended.code, "\n".join([*said, ended.text]).strip())


def _next(runtime: Runtime, said: str) -> Runtime | None:
    """Return what to try after this failure, None where nothing is left."""
    text = said.lower()
    if "rlimit" in text:
        ways = [(), *(_limits(part) for part in NPROC_PARTS)]
        at = ways.index(runtime.create) + 1
        return replace(runtime, create=ways[at]) if at < len(ways) else None
    if runtime.kind != "podman":
        return None
    if "mqueue" in text and runtime.shared != WITHOUT_QUEUES:
        return replace(runtime, shared=WITHOUT_QUEUES)
    if ("systemd" in text or "dbus" in text) and "--cgroup-manager" not in runtime.options:
        return replace(runtime, options=(*runtime.options, "--cgroup-manager", "cgroupfs"))
    if "outside of the control groups" in text and runtime.held == "below":
        return replace(runtime, held="inside")
    other = starts.tool("runc")
    if other is not None and "--runtime" not in runtime.options:
        return replace(runtime, options=(*runtime.options, "--runtime", other))
    return None


def _limits(part: int) -> tuple[str, ...]:
    """Return limits of processes and files for a machine whose root may not raise any: both have to be given."""
    files, processes = _hard(resource.RLIMIT_NOFILE), _hard(resource.RLIMIT_NPROC) // part
    return ("--ulimit", f"nofile={files}:{files}", "--ulimit", f"nproc={processes}:{processes}")


def _hard(number: int) -> int:
    hard = resource.getrlimit(number)[1]
    return 1_048_576 if hard == resource.RLIM_INFINITY else hard


def _real_parts() -> list[Path]:
    return [
        path
        for path in map(Path, ("/usr", *(f"/{part}" for part in _PARTS)))
        if path.is_dir() and not path.is_symlink()
    ]


def _trial_folder(folder: Path) -> Path:
    """Return a folder in which this machine's programs can be mounted."""
    root = folder / "root"
    for name in ("usr", *FOLDERS):
        (root / name).mkdir(mode=0o755, parents=True, exist_ok=True)
    for name in FILES:
        (root / name).touch(0o644)
    for part in _PARTS:
        there, here = Path("/", part), root / part
        if there.is_symlink() and not here.is_symlink():
            here.symlink_to(os.readlink(there))
        elif there.is_dir() and not there.is_symlink():
            here.mkdir(mode=0o755, exist_ok=True)
    for path in (folder, root):
        path.chmod(0o755)
    return root


def none(_: str) -> list[str]:
    """Return what lists a folder as empty: all that is shown are the mounts."""
    return []


def _listing(trial: Path) -> Callable[[str], list[str]]:
    """Return what lists the folder of a trial, which is the agent's own, as `commands.prefix` wants it."""

    def inside(folder: str) -> list[str]:
        with os.scandir(f"{trial}{folder}") as entries:
            return [
                f"{one.name}@{os.readlink(one.path)}" if one.is_symlink() else one.name + "/" * one.is_dir()
                for one in entries
            ]

    return inside


def described_devices(folders: Sequence[Path] = CDI_FOLDERS) -> tuple[str, ...]:
    """Return the kinds of devices that CDI describes on this machine, such as `nvidia.com/gpu`."""
    kinds: set[str] = set()
    for folder in folders:
        for path in sorted(folder.glob("*.yaml")) + sorted(folder.glob("*.json")) if folder.is_dir() else []:
            try:
                with path.open(encoding="utf-8", errors="replace") as file:
                    text = file.read(DESCRIPTION_MAX)
            except OSError:
                continue
            kinds.update(_KIND.findall(text) if path.suffix == ".yaml" else _kinds_in_json(text))
    return tuple(sorted(kinds))


def _kinds_in_json(text: str) -> tuple[str, ...]:
    """Return the kind of a description in JSON, which may be one line; none where it cannot be read."""
    try:
        return (msgspec.json.decode(text, type=_Description).kind,)
    except msgspec.DecodeError:
        return ()


class _Description(msgspec.Struct):
    kind: str
