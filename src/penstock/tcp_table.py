"""Who listens at a port of this machine: the kernel's table of TCP sockets, and the processes that hold them."""

import contextlib
import os
import struct
from collections.abc import Iterable, Iterator
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from typing import NamedTuple

_LISTENING = "0A"

Address = IPv4Address | IPv6Address


class End(NamedTuple):
    """One line of the table."""

    local: Address
    port: int
    remote: Address
    remote_port: int
    state: str
    uid: int
    inode: int


def ends() -> Iterator[End]:
    for name in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/net/{name}").read_text(encoding="ascii").splitlines()[1:]:
                cells = line.split()
                (local, port), (remote, remote_port) = decoded(cells[1]), decoded(cells[2])
                yield End(local, port, remote, remote_port, cells[3], int(cells[7]), int(cells[9]))


def listening(among: Iterable[End], asked: Address) -> list[End]:
    """Return those of one port that the kernel may give a connection to `asked` to."""
    found: dict[int, list[End]] = {}
    for end in among:
        if end.state == _LISTENING:
            found.setdefault(_nearness(end.local, asked), []).append(end)
    nearest = max(found, default=0)
    return found[nearest] if nearest else []


def held(port: int, asked: Address, pids: Iterable[int]) -> bool:
    """Return whether all that listen there for connections to `asked` are sockets of these processes."""
    found = {end.inode for end in listening((end for end in ends() if end.port == port), asked)}
    own: set[int] = set()
    for pid in pids:
        with contextlib.suppress(OSError):  # it has ended
            own |= sockets_of(pid)
    return bool(found) and found <= own


def sockets_of(pid: int) -> set[int]:
    """Return the sockets (inodes) that a process has open. Raises: OSError when that may not be looked at."""
    found = set()
    for number in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):
            name = os.readlink(f"/proc/{pid}/fd/{number}")
            if name.startswith("socket:["):
                found.add(int(name[len("socket:[") : -1]))
    return found


def plain(address: Address) -> Address:
    """Return the IPv4 address in one of IPv6 that is mapped to it."""
    return getattr(address, "ipv4_mapped", None) or address


def decoded(cell: str) -> tuple[Address, int]:
    """Return address and port of such as `0100007F:1F90`: words as they lie in the memory of this machine."""
    words, _, port = cell.partition(":")
    packed = b"".join(struct.pack("=I", int(words[i : i + 8], 16)) for i in range(0, len(words), 8))
    return plain(ip_address(packed)), int(port, 16)


def _nearness(listens: Address, asked: Address) -> int:
    """Return how the kernel ranks a listening address for a connection to `asked`; 0: not at all."""
    if listens == asked:
        return 3
    if not listens.is_unspecified or listens.version < asked.version:
        return 0
    return 2 if listens.version == asked.version else 1
