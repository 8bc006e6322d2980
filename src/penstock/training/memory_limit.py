"""The framework's own limit of device memory, for a replica that has a part of a device.

The node's agent says how much that is. PyTorch keeps to a fraction of the device's memory, once it is told; JAX reads
a variable of its own when it starts, which the agent sets. What a program takes beside its framework is not limited.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any

VARIABLE = "PENSTOCK_DEVICE_MEMORY_BYTES"
"""Memory (bytes) of each of its devices that the replica may use; absent where it has them whole."""
KINDS = ("cuda", "npu")
"""Modules of PyTorch that have such a limit: NVIDIA and AMD, Huawei Ascend."""


def limit_bytes(variables: Mapping[str, str] = os.environ) -> int:
    """Return how much memory of each of its devices this replica may use; 0 where nothing limits it."""
    text = variables.get(VARIABLE, "")
    return int(text) if text.isdecimal() else 0


def keep_limit(variables: Mapping[str, str] = os.environ, modules: Mapping[str, Any] = sys.modules) -> bool:
    """Let PyTorch, where this program has imported it, use no more memory of its device; return whether it was told.

    Without a limit, and without a device, nothing happens: no device is initialised for it.
    """
    limit, torch = limit_bytes(variables), modules.get("torch")
    if not limit or torch is None:
        return False
    for kind in (getattr(torch, name, None) for name in KINDS):
        if kind is not None and kind.is_available():
            total = kind.get_device_properties(0).total_memory
            kind.set_per_process_memory_fraction(min(1.0, limit / total), 0)
            return True
    return False
