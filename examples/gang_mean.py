"""A gang that must start whole: every rank sends its part to rank 0 over MASTER_ADDR:MASTER_PORT and gets the mean.

Nothing but the standard library; the rendezvous is what torchrun-style programs do. With a rank missing it would wait
for ever, which is why a scheduler has to start all of them or none.
"""

import os
import random
import socket
import struct
import sys
import time

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
ADDRESS = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
ROUNDS = int(sys.argv[1]) if len(sys.argv) > 1 else 20
PAUSE_S = 0.05
CONNECT_S = 20.0


def read_exactly(link: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        piece = link.recv(count - len(data))
        if not piece:
            raise ConnectionError("a peer left")
        data += piece
    return data


def connect() -> socket.socket:
    deadline = time.monotonic() + CONNECT_S
    while True:
        try:
            return socket.create_connection(ADDRESS, timeout=CONNECT_S)
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def lead() -> float:
    with socket.create_server(ADDRESS) as server:
        server.settimeout(CONNECT_S)
        links = [server.accept()[0] for _ in range(WORLD - 1)]
    mean = 0.0
    for turn in range(ROUNDS):
        parts = [part(turn)] + [struct.unpack("<d", read_exactly(link, 8))[0] for link in links]
        mean = sum(parts) / WORLD
        for link in links:
            link.sendall(struct.pack("<d", mean))
        time.sleep(PAUSE_S)
    for link in links:
        link.close()
    return mean


def follow() -> float:
    mean = 0.0
    with connect() as link:
        for turn in range(ROUNDS):
            link.sendall(struct.pack("<d", part(turn)))
            (mean,) = struct.unpack("<d", read_exactly(link, 8))
    return mean


def part(turn: int) -> float:
    return random.Random(turn * 1000 + RANK).random()


mean = lead() if RANK == 0 else follow()
print(f"rank {RANK} of {WORLD} on devices {os.environ['PENSTOCK_DEVICES']}: mean of the last round {mean:.6f}")
