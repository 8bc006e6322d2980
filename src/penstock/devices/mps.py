"""NVIDIA's Multi-Process Service: what its programs are called, and how a fraction of a device is limited by it.

Source: https://docs.nvidia.com/deploy/mps/ (architecture; tools and interface reference). A program whose driver finds
no daemon at its pipe folder runs on without MPS and without any limit: so a replica starts only beside a daemon that
runs, and a daemon that ends is a fault of its device.
"""

from pathlib import Path

from penstock.core.model.resources import Device, DeviceAsk

CONTROL = "nvidia-cuda-mps-control"
SERVER = "nvidia-cuda-mps-server"
PID_FILE = f"{CONTROL}.pid"
"""In the pipe folder; holds the number of the control daemon."""
PIPES, LOGS, VISIBLE = "CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY", "CUDA_VISIBLE_DEVICES"
CAPABILITY_MIN = (7, 0)
"""From Volta on each client has an address space and limits of its own."""
PIPES_MAX_CHARS = 88
"""Of a pipe folder's path: the names of the sockets in it must fit into the 108 bytes of a socket's address."""
MIB = 2**20


def is_for(device: Device) -> bool:
    """Return whether fractions of this device can run through MPS."""
    return device.vendor == "nvidia" and not device.simulated and device.capability >= CAPABILITY_MIN


def daemon_variables(device: Device, pipes: Path, logs: Path) -> dict[str, str]:
    """Return the variables of the control daemon of one device, which is the only one that it sees."""
    return {PIPES: str(pipes), LOGS: str(logs), VISIBLE: device.uuid or str(device.index)}


def client_variables(ask: DeviceAsk, device: Device, pipes: Path) -> dict[str, str]:
    """Return the variables that limit a program to its fraction of a device.

    The share is the portion of the device's threads, in whole percent and 1 at least. The limit of memory, in MiB, is
    of device 0: a fraction is of one device, the only one that the program and its daemon see.
    """
    return {
        PIPES: str(pipes),
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": str(max(1, ask.share_milli // 10)),
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": f"0={max(1, ask.memory_of(device) // MIB)}M",
    }
