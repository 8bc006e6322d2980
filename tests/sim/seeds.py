"""Seeds of the fault simulators that each run tries: those that found a bug, and those that find planted ones."""

import tomllib
from pathlib import Path

_TOLD = tomllib.loads((Path(__file__).parents[1] / "seeds.toml").read_text(encoding="utf-8"))
KEPT: list[int] = _TOLD["seeds"]
KEPT_OF_PODS: list[int] = _TOLD["pods"]
FOUND_BY: dict[str, list[int]] = _TOLD["planted"]
FOUND_BY_PODS: dict[str, list[int]] = _TOLD["planted_in_pods"]
