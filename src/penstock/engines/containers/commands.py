"""The words that start a container, by what its node has: pure. Recorded in `tests/engines/containers/`.

Sources: podman-create(1) of Podman 4.3 and 5.5; apptainer-exec of Apptainer 1.4, which
was never run here; ch-run(1) of Charliecloud 0.31; bwrap(1) of bubblewrap 0.8.
"""

import signal
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Literal, NamedTuple

import msgspec

from penstock.core.model.containers import Mount, RuntimeKind, is_plain
from penstock.engines.containers import keeper, source_mounts

NAME_LABEL, NODE_LABEL = "penstock.replica", "penstock.node"
KEPT: tuple[RuntimeKind, ...] = ("podman",)
"""Runtimes whose containers are not children of what starts them: `keeper.py` keeps these."""
BY_NAME: tuple[RuntimeKind, ...] = ("podman", "apptainer", "charliecloud")
BY_FOLDER: tuple[RuntimeKind, ...] = ("charliecloud", "apptainer", "bubblewrap")
"""Which take which images, the ones that hold most first."""
PARTS = "parts"
"""In the folder of its keeper's files, the end of the name of the folder in which sources are mounted first."""
Held = Literal["below", "inside", "apart"]


class NotMountable(OSError):
    """A path cannot be written into the list of mounts of a runtime without meaning something else there."""


def mount_words(kind: RuntimeKind, source: str, target: str, *, read_only: bool = False) -> list[str]:
    """Return the words by which a runtime mounts a folder or file. The one place in which such lists are made.

    Raises: NotMountable.
    """
    for path in (source, target):
        if not is_plain(path):
            raise NotMountable(f"{path!r} cannot be mounted: no runtime takes such a path as it is")
    match kind:
        case "podman":
            fields = ["type=bind", f"source={source}", f"target={target}", *(["readonly"] if read_only else [])]
            return ["--mount", ",".join(fields)]
        case "charliecloud":  # knows no read-only mounts
            return [f"--bind={source}:{target}"]
        case "apptainer":
            return [f"--bind={source}:{target}{':ro' if read_only else ''}"]
        case "bubblewrap":
            return ["--ro-bind" if read_only else "--bind", source, target]


class Runtime(msgspec.Struct, frozen=True, omit_defaults=True):
    """A runtime as it works on a node, or why it does not."""

    kind: RuntimeKind
    program: str
    version: str = ""
    options: tuple[str, ...] = ()
    """Of each of its commands."""
    create: tuple[str, ...] = ()
    """Of each container, such as the limits without which none starts on this machine."""
    shared: tuple[str, ...] = ("--ipc=host",)
    """By which its programs share memory with others of the node."""
    held: Held = "inside"
    """Where processes of a container are: in control groups below those of who starts it, in the same, or in those of
    a daemon."""
    rootless: bool = False
    cdi: tuple[str, ...] = ()
    """Kinds of devices that CDI describes here, such as `nvidia.com/gpu`."""
    problem: str = ""
    """Why it does not work."""


class ContainerUser(NamedTuple):
    """As whom the program runs inside."""

    uid: int
    gid: int
    groups: tuple[int, ...] = ()


class Container(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one replica needs of a runtime."""

    name: str
    """Of the container; letters, digits, `.`, `_` and `-`."""
    node: str
    """Value of its label, by which an agent finds its containers again."""
    image: str
    """Id of the image, or the folder that it lies in."""
    command: tuple[str, ...]
    workdir: str
    mounts: tuple[Mount, ...] = ()
    devices: tuple[str, ...] = ()
    """By their CDI names."""
    user: ContainerUser | None = None
    """None: root inside, which is the agent's user where the runtime is rootless."""
    root: str = ""
    """For Charliecloud: a folder with the mount points of all that is shown (`roots.py`)."""
    rootfs: bool = False
    """`image` is a folder."""
    files: tuple[str, ...] = ()
    """Targets of mounts that are files: the others are folders."""
    folders: tuple[str, ...] = ()
    """Folders of the node below which the sources lie that its job names."""
    named: tuple[str, ...] = ()
    """Targets of the mounts that its job names."""
    environment_file: str = ""
    pid_file: str = ""
    conmon_file: str = ""


def created(runtime: Runtime, container: Container) -> list[str]:
    """Return the words by which Podman or Docker make a container; `--env-file` is where the keeper adds to them."""
    words = [runtime.program, *runtime.options, "create", "--name", container.name]
    words += ["--label", f"{NODE_LABEL}={container.node}", "--label", f"{NAME_LABEL}={container.name}"]
    words += ["--pull=never", "--network=host", *runtime.shared, "--uts=host", "--no-healthcheck", *runtime.create]
    if runtime.kind == "podman":
        words += ["--log-driver=passthrough", "--systemd=false", "--sdnotify=ignore", "--http-proxy=false"]
        words += [
            "--no-hosts",
            "--cgroups=no-conmon",
            "--pidfile",
            container.pid_file,
            "--conmon-pidfile",
            container.conmon_file,
        ]
    else:
        words += ["--log-driver=none"]
    if runtime.held != "apart" and not runtime.rootless:
        words += ["--pid=host"]  # else its first process would ignore signals; the box holds them all the same
    words += _as_user(runtime, container.user)
    words += [f"--device={name}" for name in container.devices]
    for mount, source in zip(container.mounts, _sources(runtime, container), strict=True):
        words += mount_words(runtime.kind, source, mount.target, read_only=mount.read_only)
    words += ["--workdir", container.workdir, "--env-file", container.environment_file, "--entrypoint="]
    return [*words, *(["--rootfs"] if container.rootfs else []), container.image, *container.command]


def _as_user(runtime: Runtime, user: ContainerUser | None) -> list[str]:
    """A program of an account gets nothing of root: as outside of containers (`run_as.py`)."""
    if runtime.rootless:
        return ["--userns=keep-id"] if runtime.kind == "podman" else []
    if user is None:
        return ["--user=0:0"]
    words = [f"--user={user.uid}:{user.gid}", *(f"--group-add={group}" for group in user.groups)]
    return [*words, "--cap-drop=all", "--security-opt=no-new-privileges"]


def _sources(runtime: Runtime, container: Container) -> list[str]:
    """Return the sources as the runtime is given them: under root where the keeper has mounted them, by descriptor."""
    if runtime.rootless:
        return [mount.source for mount in container.mounts]
    return [f"{parts_folder(container)}/{at}" for at in range(len(container.mounts))]


def parts_folder(container: Container) -> str:
    """Return the folder in which the keeper mounts the sources of a container."""
    return f"{container.pid_file}.{PARTS}"


def plan(
    runtime: Runtime,
    container: Container,
    *,
    file: str,
    unknown: str,
    stop: str = "SIGTERM",
    grouped: bool = True,
    output: str = "",
) -> dict[str, object]:
    """Return what `keeper.py` does: commands of the runtime, files, and how its container is held.

    Args:
        file: of the plan; the keeper removes it when nothing of the container is left.
        unknown: the file that says why there is no exit code.
        stop: name of the signal that asks the program to save and leave.
        grouped: its box is one of control groups.
        output: the file that the program prints to; empty: the keeper's own output, a file, too.
    """
    base = [runtime.program, *runtime.options]
    return {
        "create": created(runtime, container),
        "init": [*base, "init", container.name],
        "start": [*base, "start", container.name],
        "remove": removed(runtime, container.name),
        "environment": container.environment_file,
        "pid": container.pid_file,
        "conmon": container.conmon_file,
        "plan": file,
        "unknown": unknown,
        "output": output,
        "variables": not container.rootfs,
        "grouped": grouped,
        "sources": [
            [mount.source, list(container.folders) if mount.target in container.named else None]
            for mount in container.mounts
        ],
        "parts": "" if runtime.rootless else parts_folder(container),
        "user": [*container.user] if container.user is not None else [],
        "program": container.command[0],
        "stop": int(signal.Signals[stop]),
        "below": runtime.held == "below",
        "private": runtime.rootless,
    }


def keeper_words(plan_file: str) -> tuple[str, ...]:
    """Return the words that start the keeper of a container."""
    return (sys.executable, "-I", "-S", source_mounts.__file__, plan_file, keeper.__file__)


def removed(runtime: Runtime, *names: str) -> list[str]:
    """Return the words that remove containers, running or not, and what they wrote. No such container is no error."""
    words = [runtime.program, *runtime.options, "rm", "--force", "--volumes"]
    return [*words, *(["--ignore", "--time=0"] if runtime.kind == "podman" else []), *names]


def listed(runtime: Runtime, node: str) -> list[str]:
    """Return the words that list the names of all containers of a node."""
    base = [runtime.program, *runtime.options, "ps", "--all", "--no-trunc"]
    return [*base, "--filter", f"label={NODE_LABEL}={node}", "--format", "{{.Names}}"]


def prefix(
    runtime: Runtime, container: Container, *, vendors: Sequence[str] = (), inside: Callable[[str], Iterable[str]]
) -> list[str]:
    """Return the words before the command by which a runtime without a daemon runs it: as a child of who starts it.

    Args:
        vendors: of the replica's devices.
        inside: lists a folder of the image: names, a folder's with `/` at its end, a link's with `@` and its target.
    Raises: NotMountable.
    """
    mounts = [
        word
        for mount in container.mounts
        for word in mount_words(runtime.kind, mount.source, mount.target, read_only=mount.read_only)
    ]
    match runtime.kind:
        case "charliecloud":
            shown = [one for one in layers(container, inside) if one.kind in ("file", "shown")]
            binds = [word for one in shown for word in mount_words(runtime.kind, one.source, one.path)]
            words = [runtime.program, *runtime.options, *binds, *mounts]
            return [*words, f"--cd={container.workdir}", container.root, "--"]
        case "apptainer":
            gpus = [{"nvidia": "--nv", "amd": "--rocm"}[one] for one in vendors if one in ("nvidia", "amd")]
            words = [runtime.program, "--silent", "exec", "--no-home", "--no-mount=cwd", *gpus, *mounts]
            return [*words, f"--pwd={container.workdir}", *runtime.options, container.image]
        case "bubblewrap":
            words = [runtime.program, *runtime.options]
            words += [word for layer in layers(container, inside) for word in _bwrap(layer)]
            words += ["--proc", "/proc", "--dev-bind", "/dev", "/dev", "--bind", "/tmp", "/tmp"]  # noqa: S108
            return [*words, *mounts, "--chdir", container.workdir, "--"]
        case _:
            raise ValueError(f"{runtime.kind} keeps its containers by a daemon")


class Layer(NamedTuple):
    """One step that shows an image as the root: a folder that is made, a link, or something of the image."""

    kind: Literal["folder", "link", "shown", "file"]
    """`shown`: a folder of the image."""
    path: str
    source: str = ""
    """Of what is shown; the target of a link."""


def layers(container: Container, inside: Callable[[str], Iterable[str]]) -> list[Layer]:
    """Return what shows an image as the root where nothing can be added to it: folders on the way to a mount are made
    anew, and filled with what the image has in them.
    """
    ways = set(ways_to(mount.target for mount in container.mounts)) - {"/"}
    targets = {mount.target for mount in container.mounts} | {"/proc", "/dev", "/sys", "/tmp"}  # noqa: S108
    found: list[Layer] = []
    left = [""]
    while left:
        folder = left.pop(0)
        for entry in sorted(inside(folder or "/")):
            name, is_link, target = entry.partition("@")
            path = f"{folder}/{name.removesuffix('/')}"
            if path in targets and entry.endswith("/"):
                continue
            if path in ways and entry.endswith("/"):
                found.append(Layer("folder", path))
                left.append(path)
            elif is_link:
                found.append(Layer("link", path, target))
            else:
                kind: Literal["shown", "file"] = "shown" if entry.endswith("/") else "file"
                found.append(Layer(kind, path, f"{container.image}{path}"))
    return found


def ways_to(targets: Iterable[str]) -> list[str]:
    """Return the folders on the way to targets, above all others first: those that `layers` may list."""
    return sorted({str(parent) for target in targets for parent in PurePosixPath(target).parents})


def _bwrap(layer: Layer) -> list[str]:
    if layer.kind in ("shown", "file"):
        return mount_words("bubblewrap", layer.source, layer.path, read_only=True)
    return ["--dir", layer.path] if layer.kind == "folder" else ["--symlink", layer.source, layer.path]


def renumbered(variables: Mapping[str, str], names: Iterable[str], count: int) -> dict[str, str]:
    """Return the variables that list visible devices, for a container that sees these devices alone, counted from 0."""
    seen = ",".join(map(str, range(count)))
    return {name: seen for name in names if variables.get(name)}
