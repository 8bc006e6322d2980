"""The limit of power of an NVIDIA GPU, by `nvidia-smi`, which has to be run as root to change it."""

import re

from penstock.devices.power_limits import PowerLimits, set_by
from penstock.devices.provider import Output, Sources

TOOL = "nvidia-smi"
COLUMNS = "power.limit,power.default_limit,power.min_limit,power.max_limit"
_WATTS = re.compile(r"\s*([0-9]{1,5}(?:\.[0-9]{1,3})?)\s*")


def limit_power(sources: Sources, uuid: str, limit_mw: int) -> str:
    """Keep a GPU to a limit (mW), 0: to its own; return '' or why it is not."""
    if not uuid.startswith("GPU-"):
        return "an instance of MIG has no limit of its own"

    def change(wanted_mw: int) -> Output:
        return sources.run(TOOL, "-i", uuid, "-pl", f"{wanted_mw / 1000:g}")

    return set_by(limit_mw, lambda: _limits(sources, uuid), (change,))


def _limits(sources: Sources, uuid: str) -> PowerLimits | None:
    output = sources.run(TOOL, "-i", uuid, f"--query-gpu={COLUMNS}", "--format=csv,noheader,nounits")
    cells = [_WATTS.fullmatch(cell) for cell in output.text.strip().split(",")]
    numbers = [round(float(cell[1]) * 1000) for cell in cells if cell is not None]
    return PowerLimits(*numbers) if output.passed and len(cells) == len(numbers) == len(PowerLimits._fields) else None
