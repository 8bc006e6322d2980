"""Joining: the data folder of a node of another machine, and its agent.

The folder has the form of a server's, without a log: `link.json` says where the server is.
"""

import contextlib
import hashlib
import time
from pathlib import Path

import msgspec
from msgspec.structs import replace

from penstock.core.config.nodes import DEVICES_PER_NODE_MAX
from penstock.core.model.errors import InvalidInput, PenstockError
from penstock.core.model.nodes import NodeSpec
from penstock.core.model.quantities import parse_size_bytes
from penstock.core.model.resources import Device, Resources
from penstock.devices.host import host_resources
from penstock.devices.installed import discovered
from penstock.devices.simulated import simulated
from penstock.engines.agent.apart import NodeFiles
from penstock.engines.agent.joined import JoinBundle, LinkState, NodeLink, ServerAddress, read_link, storage_id
from penstock.engines.agent.protocol import PROGRAM
from penstock.engines.local.launch import agent_pid, node_config, replace_agent, start_agent, write_config
from penstock.engines.local.nodes import PORTS_FIRST, PORTS_PER_NODE
from penstock.engines.processes.paths import DataFolder
from penstock.engines.processes.trust import check_data
from penstock.privatefiles import PASSED, make_folder, passed_by_accounts, write_whole
from penstock.security.authority import new_request

SIMULATED_MODEL, SIMULATED_BYTES = "SIM-80G", 80 * 2**30
LOOK_S = 0.05
STARTED_S = 20.0


class NotJoined(PenstockError):
    """The server has not taken the node in."""

    code = "not_joined"


class JoinWish(msgspec.Struct, frozen=True):
    """What of this machine is offered, and how it is reached; what is not said is taken from the machine."""

    cpus: float | None = None
    memory: str = ""
    devices: tuple[int, ...] | None = None
    """Numbers among the machine's own devices; () offers none."""
    simulated: int = 0
    """Simulated devices, in place of real ones."""
    simulated_model: str = SIMULATED_MODEL
    address: str = ""
    ports: tuple[int, int] | None = None
    """First and last port for rendezvous."""
    shared: str = ""
    servers: tuple[ServerAddress, ...] = ()


NO_WISH = JoinWish()


class Joined(msgspec.Struct, frozen=True):
    node: str
    pid: int
    """Of the agent's guardian; 0 where it has yet to be started."""
    data: str


def prepare(
    bundle: JoinBundle | None, data: Path, wish: JoinWish = NO_WISH, *, beside: bool = False
) -> tuple[DataFolder, NodeSpec]:
    """Make `data` the folder of a node, or bring it up to date; return it with what the node will offer.

    Args:
        bundle: by which it joins; None: it has joined, or tried to.
        beside: a living agent of the node may take up what is new.
    Raises: InvalidInput for a folder of a server or of another node, a wish that cannot be met, or a living agent;
        NotPrivate; OSError.
    """
    make_folder(data, passed_by_accounts())
    folder = DataFolder(data.resolve())
    check_data(folder)
    if folder.log.exists() or folder.server_lock.exists():
        hint = "give the node a folder of its own: --data DIR"
        raise InvalidInput(f"{folder.root} is the data folder of a server", hint=hint)
    former = read_link(folder)
    if bundle is None and former is None:
        hint = "penstock node add NAME, at the server, makes a join bundle; penstock node join FILE uses it"
        raise InvalidInput(f"no node has joined in {folder.root}", hint=hint)
    name = bundle.node if bundle is not None else former.node if former is not None else ""
    if former is not None and former.node != name:
        hint = "give each node a folder of its own: --data DIR"
        raise InvalidInput(f"{folder.root} is the folder of node '{former.node}', not of '{name}'", hint=hint)
    files = NodeFiles(folder.node(name))
    if bundle is not None and former is not None and files.renewal.exists() and _mark(files) == _mark_of(bundle):
        bundle = None  # its key is worth nothing any more: the node has one of its own
    pid = agent_pid(folder, name)
    if pid is not None:
        state = _state(files)
        if not beside or (bundle is None and wish == NO_WISH and state.program == PROGRAM):
            raise _runs(name, pid, state)
    make_folder(folder.node(name).parent)
    make_folder(folder.node(name))
    files.state.unlink(missing_ok=True)
    spec = _spec(folder, name, wish)
    if bundle is not None:
        _unpack(folder, bundle)
    servers = wish.servers or (bundle.servers if bundle is not None else former.servers if former is not None else ())
    address = wish.address or (former.address if former is not None else "")
    learned = former.learned if former is not None and bundle is None and not wish.servers else ()
    link = NodeLink(bundle.node if bundle is not None else spec.name, servers, address, learned)
    write_whole(folder.link, msgspec.json.encode(link))
    shared = wish.shared or _former_shared(folder, name)
    write_config(folder, spec, shared)
    return folder, spec


def join(bundle: JoinBundle | None, data: Path, wish: JoinWish = NO_WISH) -> Joined:
    """Make a machine a node, and start its agent in a session of its own; a living agent takes up what is new.

    Raises: as `prepare`.
    """
    folder, spec = prepare(bundle, data, wish, beside=True)
    begun = start_agent(folder, spec, _former_shared(folder, spec.name))
    pid = begun.pid if begun is not None else agent_pid(folder, spec.name) or 0
    if begun is None:
        replace_agent(folder, spec.name)
    return Joined(spec.name, pid, str(folder.root))


def wait_joined(folder: DataFolder, node: str, limit_s: float) -> str:
    """Wait until the server has taken the node in; return that server's address. Raises: NotJoined."""
    files, deadline = NodeFiles(folder.node(node)), time.monotonic() + limit_s
    while True:
        state = _state(files)
        if state.welcome:
            return state.server
        if time.monotonic() > deadline:
            hint = f"{folder.node(node) / 'agent.log'} says more; the agent goes on trying"
            raise NotJoined(f"node '{node}' has not joined within {limit_s:g} s: {state.problem}", hint=hint)
        time.sleep(LOOK_S)


def _state(files: NodeFiles) -> LinkState:
    with contextlib.suppress(OSError, msgspec.MsgspecError):
        return msgspec.json.decode(files.state.read_bytes(), type=LinkState)
    return LinkState(welcome=False, problem="the agent has not tried yet")


def _runs(name: str, pid: int, state: LinkState) -> InvalidInput:
    where = f"of the server at {state.server}" if state.welcome else f"but not let in: {state.problem}"
    which = f" (process {pid})" if pid > 0 else ""
    hint = "nothing needs to be done; `penstock node join` with options changes what it offers, `penstock down` ends it"
    if not state.welcome:
        hint = "`penstock node join` takes a new bundle, or --servers HOST:PORT; `penstock down` ends the agent"
    return InvalidInput(f"this machine is node '{name}' already, {where}; its agent{which} runs", hint=hint)


def _mark(files: NodeFiles) -> str:
    with contextlib.suppress(OSError):
        return files.bundle.read_text(encoding="ascii")
    return ""


def _mark_of(bundle: JoinBundle) -> str:
    return hashlib.sha256(bundle.certificate.encode()).hexdigest()


def _unpack(folder: DataFolder, bundle: JoinBundle) -> None:
    """Take up the key of a bundle, by which the node joins, and make one of its own."""
    files = NodeFiles(folder.node(bundle.node))
    make_folder(folder.certificates, PASSED)
    write_whole(folder.trusted, bundle.trusted, 0o644)
    if not (files.key.exists() and files.request.exists()):
        key, request = new_request(bundle.node)
        write_whole(files.key, key)
        write_whole(files.request, request)
    files.renewal.unlink(missing_ok=True)
    write_whole(files.certificate, bundle.certificate)
    write_whole(files.bundle, _mark_of(bundle))


def _former_shared(folder: DataFolder, name: str) -> str:
    with contextlib.suppress(OSError, msgspec.MsgspecError):
        return node_config(folder.node(name) / "agent.json").shared
    return ""


def _spec(folder: DataFolder, name: str, wish: JoinWish) -> NodeSpec:
    """Return what the node offers: as wished, else as it was, else all of the machine."""
    former: NodeSpec | None = None
    with contextlib.suppress(OSError, msgspec.MsgspecError):
        former = node_config(folder.node(name) / "agent.json").spec
    host = host_resources(folder.root)
    has = former.capacity if former is not None else host
    if wish.cpus is not None:
        has = replace(has, cpu_milli=_cpus(wish.cpus))
    if wish.memory:
        has = replace(has, memory_bytes=_memory(wish.memory))
    capacity = Resources(cpu_milli=has.cpu_milli, memory_bytes=has.memory_bytes, storage_bytes=host.storage_bytes)
    devices = former.devices if former is not None else None
    if wish.simulated:
        devices = simulated(wish.simulated, wish.simulated_model, SIMULATED_BYTES)
    elif wish.devices is not None or devices is None:
        devices = _chosen(wish.devices)
    first, last = _ports(wish.ports, former)
    storage = former.storage if former is not None else ""
    if wish.shared:
        _check_shared(Path(wish.shared))
        storage = storage_id(Path(wish.shared))
    known = former or NodeSpec(name=name, capacity=capacity)  # type: ignore[arg-type]
    return replace(
        known, capacity=capacity, devices=devices, port_first=first, port_count=last - first + 1, storage=storage
    )


def _cpus(cpus: float) -> int:
    if not 0 < cpus <= 2**20:
        raise InvalidInput(f"--cpus is {cpus:g}, expected a number above 0")
    return round(cpus * 1000)


def _memory(text: str) -> int:
    try:
        found = parse_size_bytes(text)
    except ValueError as error:
        raise InvalidInput(f"--memory is '{text}', expected a size such as 32GiB") from error
    if found <= 0:
        raise InvalidInput(f"--memory is '{text}', expected a size above 0")
    return found


def _ports(wished: tuple[int, int] | None, former: NodeSpec | None) -> tuple[int, int]:
    if wished is None:
        if former is not None:
            return former.port_first, former.port_first + former.port_count - 1
        return PORTS_FIRST, PORTS_FIRST + PORTS_PER_NODE - 1
    first, last = wished
    if not 1024 <= first <= last < 2**16:
        raise InvalidInput(f"--ports is {first}-{last}, expected FIRST-LAST between 1024 and 65535")
    return first, last


def _check_shared(shared: Path) -> None:
    if not shared.is_absolute() or not shared.is_dir():
        raise InvalidInput(f"--shared is '{shared}', expected the absolute path of a folder that is there")


def _chosen(numbers: tuple[int, ...] | None) -> tuple[Device, ...]:
    """Return the machine's devices, or those of these numbers, counted anew."""
    if numbers == ():
        return ()
    found = discovered().devices[:DEVICES_PER_NODE_MAX]
    if numbers is None:
        return found
    wrong = [number for number in numbers if not 0 <= number < len(found)]
    if wrong or len(set(numbers)) != len(numbers):
        which = wrong[0] if wrong else "one of them twice"
        raise InvalidInput(f"--devices names {which}; this machine has {len(found)} devices, counted from 0")
    if any(not found[number].uuid and at != number for at, number in enumerate(numbers)):
        raise InvalidInput("--devices leaves out devices before some that have no uuid: programs know those by number")
    place = {number: at for at, number in enumerate(numbers)}
    return tuple(
        replace(
            found[number],
            index=at,
            links=tuple(
                sorted(
                    (replace(link, peer=place[link.peer]) for link in found[number].links if link.peer in place),
                    key=lambda link: link.peer,
                )
            ),
        )
        for at, number in enumerate(numbers)
    )
