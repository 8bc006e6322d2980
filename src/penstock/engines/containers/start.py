"""How a replica starts in a container: what the agent's gate becomes, and what the program sees inside."""

import contextlib
import hashlib
import json
import os
import pwd
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from penstock import starts
from penstock.core.messages.orders import StartReplica
from penstock.core.messages.reports import ReplicaKey
from penstock.core.model.containers import Mount
from penstock.core.model.resources import Device
from penstock.devices.installed import VARIABLES
from penstock.engines.containers.commands import (
    KEPT,
    Container,
    ContainerUser,
    Runtime,
    keeper_words,
    plan,
    prefix,
    removed,
    renumbered,
)
from penstock.engines.containers.roots import make_root
from penstock.engines.processes import account_files
from penstock.engines.processes.accounts import UserAccount, private
from penstock.engines.processes.paths import DataFolder
from penstock.engines.processes.procfs import REPLICA_MARK
from penstock.engines.processes.spawn import Gated, base_environment

CDI_KINDS = {"nvidia": "nvidia.com/gpu", "amd": "amd.com/gpu", "intel": "intel.com/gpu", "habana": "habana.ai/gaudi"}
REMOVE_S = 60.0
PATH_INSIDE = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
OF_THE_NODE = ("PATH", "HOME", "SHELL", "TMPDIR", "LD_LIBRARY_PATH", "LANG", "LC_ALL", "LC_CTYPE")
"""Variables of the node's that mean nothing in an image."""


class Chosen(msgspec.Struct, frozen=True, omit_defaults=True):
    """How this node runs an image: in `StartReplica.container`."""

    node: str
    runtime: Runtime
    image: str
    """Its id, or the folder that it lies in."""
    mounts: tuple[Mount, ...] = ()
    """What the job names of the node, its `workdir` among them: sources as its account reaches them, without links."""
    files: tuple[str, ...] = ()
    """Targets of those that are files."""
    folders: tuple[str, ...] = ()
    """One of which the sources have to lie in."""
    inside: dict[str, tuple[str, ...]] = {}
    """What is in folders of the image, as `commands.layers` wants it."""


encode, decode = msgspec.json.Encoder().encode, msgspec.json.Decoder(Chosen).decode


class InContainer(NamedTuple):
    """What the gate starts, as whom, and what the keeper of a container hands on to the program."""

    gated: Gated
    account: UserAccount | None
    handed: Mapping[str, str] | None


def container_name(data: DataFolder, key: ReplicaKey | str) -> str:
    """Return the name of a replica's container: no other one of the machine has it."""
    return f"penstock-{hashlib.sha256(str(data.root).encode()).hexdigest()[:8]}-{key}"


def own_name() -> str:
    """Return the name of the agent's user, by which Podman looks for its subordinate users."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())


def root_of(data: DataFolder, node: str, key: ReplicaKey | str) -> Path:
    """Return the folder of mount points of a replica under Charliecloud."""
    return data.containers(node) / f"{key}.root"


def in_container(
    order: StartReplica,
    devices: Sequence[Device],
    data: DataFolder,
    environment: Mapping[str, str],
    account: UserAccount | None,
    gates: Sequence[str],
) -> InContainer:
    """Return what starts a replica in its container. Raises: OSError, also for devices that no container can show."""
    chosen, job_id = decode(order.container), order.key.job_id
    report = data.report(order.key)
    os.close(account_files.kept_file(report, os.O_WRONLY, *((account.uid, account.gid) if account else ())))
    own = str(data.work(job_id))
    inside = _environment(order, environment, own)
    mounts = [Mount(str(path), str(path)) for path in (data.checkpoints(job_id), own, report)]
    if order.batch is not None:
        mounts.append(Mount(str(data.told(job_id)), str(data.told(job_id)), read_only=True))
    mounts += [Mount(path, path, read_only=True) for path in order.shown]
    mounts += chosen.mounts
    shown = _shown(devices, chosen.runtime)
    if shown:
        for vendor in {device.vendor for device in devices}:
            count = sum(device.vendor == vendor for device in devices)
            inside |= renumbered(inside, (*VARIABLES.get(vendor, ()), "HIP_VISIBLE_DEVICES"), count)
    container = Container(
        name=container_name(data, order.key),
        node=f"{container_name(data, chosen.node)}",
        image=chosen.image,
        command=order.command,
        workdir=order.workdir or own,
        mounts=tuple({mount.target: mount for mount in mounts}.values()),
        devices=shown,
        user=_user(account),
        files=(str(report), *chosen.files),
        folders=chosen.folders,
        named=tuple(mount.target for mount in chosen.mounts),
    )
    if chosen.runtime.kind in KEPT:
        return _kept(order, data, chosen, container, inside, environment[REPLICA_MARK], gates)

    def show(folder: str) -> tuple[str, ...]:
        return chosen.inside.get(folder, ())

    if chosen.runtime.kind == "charliecloud":
        root = root_of(data, chosen.node, order.key)
        make_root(root, container, show)
        container = msgspec.structs.replace(container, root=str(root))
    vendors = sorted({device.vendor for device in devices if not device.simulated})
    words = prefix(chosen.runtime, container, vendors=vendors, inside=show)
    inside = {"PATH": PATH_INSIDE, "USER": own_name(), **inside}
    gated = Gated(
        (*words, *order.command), inside, own, str(data.checkpoints(job_id)), data.never_ran(order.key), gates
    )
    return InContainer(gated, account, None)


def _kept(
    order: StartReplica,
    data: DataFolder,
    chosen: Chosen,
    container: Container,
    inside: Mapping[str, str],
    mark: str,
    gates: Sequence[str],
) -> InContainer:
    """Write the plan of the keeper, which runs as the agent does: the container's program is the account's."""
    folder = private(data.node(chosen.node) / "containers")
    files = {f"{one}_file": str(folder / f"{order.key}.{one}") for one in ("environment", "pid", "conmon")}
    container = msgspec.structs.replace(container, **files)
    file, never_ran = data.keeper(chosen.node, order.key), data.never_ran(order.key)
    way = plan(
        chosen.runtime,
        container,
        file=str(file),
        unknown=str(never_ran),
        stop=order.checkpoint.stop_signal,
        grouped=bool(gates),
    )
    descriptor = os.open(
        file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
    )  # root's: the node's folder
    with os.fdopen(descriptor, "w", encoding="utf-8") as opened:
        json.dump(way, opened)
    outside = {**base_environment(os.environ, None), REPLICA_MARK: mark}
    outside.setdefault("USER", own_name())
    outside |= {name: os.environ[name] for name in ("XDG_RUNTIME_DIR",) if name in os.environ}
    words = keeper_words(str(file))
    gated = Gated(words, outside, "/", "/", never_ran, gates)
    return InContainer(gated, None, inside)


def _environment(order: StartReplica, environment: Mapping[str, str], own: str) -> dict[str, str]:
    """Return the variables of a program inside: the image's own hold where the job does not set them."""
    set_by_job = dict(order.env)
    found = {name: value for name, value in environment.items() if name not in OF_THE_NODE or name in set_by_job}
    return {"HOME": own, **found}


def _shown(devices: Sequence[Device], runtime: Runtime) -> tuple[str, ...]:
    """Return the CDI names of real devices; none where a container sees the node's. Raises: OSError."""
    real = [device for device in devices if not device.simulated]
    if not real or runtime.kind not in KEPT:
        return ()
    names = []
    for device in real:
        kind = CDI_KINDS.get(device.vendor, "")
        if kind not in runtime.cdi:
            raise OSError(f"no container can be given its devices: CDI does not describe {kind or device.vendor} here")
        names.append(f"{kind}={device.uuid or device.index}")
    return tuple(names)


def _user(account: UserAccount | None) -> ContainerUser | None:
    if account is None:
        return None
    groups = tuple(group for group in os.getgrouplist(account.name, account.gid) if group != account.gid)
    return ContainerUser(account.uid, account.gid, groups)


def remove_records(runtime: Runtime, names: Sequence[str]) -> None:
    """Remove containers of which no process is left. In a thread; what cannot be removed is left to the next time."""
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        subprocess.run(  # noqa: S603 - the runtime of this node
            removed(runtime, *names),
            stdin=subprocess.DEVNULL,
            cwd=starts.HOME,
            capture_output=True,
            timeout=REMOVE_S,
            check=False,
        )
