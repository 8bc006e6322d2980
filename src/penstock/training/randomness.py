"""Saves and restores random number generators, so that a resumed run continues the sequence of the first.

The global generators of `random`, NumPy and PyTorch (CPU and CUDA) are covered, each only if its library
is loaded; generators of your own are given by name.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Mapping
from typing import Any

from penstock.training.errors import BadArgument


def random_state(**generators: Any) -> dict[str, Any]:
    """Return the state of all global generators and of the named ones; a value that a checkpoint can hold.

    Args:
        generators: `random.Random`, `numpy.random.Generator` or `torch.Generator` objects.
    Raises: BadArgument for an object of another kind.
    """
    state: dict[str, Any] = {"python": random.getstate()}
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if numpy is not None:
        state["numpy"] = numpy.random.get_state()
    if torch is not None:
        state["torch"] = torch.get_rng_state()
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            state["torch_cuda"] = torch.cuda.get_rng_state_all()
    state["named"] = {name: _get(name, generator) for name, generator in generators.items()}
    return state


def restore_random_state(state: Mapping[str, Any], **generators: Any) -> None:
    """Set all generators to `state`, which `random_state` returned with generators of the same names.

    Raises: BadArgument if a library that was saved is not loaded, or the names are other ones.
    """
    named: Mapping[str, Any] = state["named"]
    if named.keys() != generators.keys():
        raise BadArgument(
            f"random state was saved for generators {sorted(named)}; expected the same, got {sorted(generators)}"
        )
    for library in ("numpy", "torch"):
        if library in state and library not in sys.modules:
            raise BadArgument(f"random state holds that of {library}, which is not imported; import it first")
    random.setstate(state["python"])
    if "numpy" in state:
        sys.modules["numpy"].random.set_state(state["numpy"])
    if "torch" in state:
        torch = sys.modules["torch"]
        torch.set_rng_state(state["torch"])
        if "torch_cuda" in state:
            torch.cuda.set_rng_state_all(state["torch_cuda"])
    for name, generator in generators.items():
        _set(name, generator, named[name])


def _kind(name: str, generator: Any) -> str:
    if isinstance(generator, random.Random):
        return "python"
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if numpy is not None and isinstance(generator, numpy.random.Generator):
        return "numpy"
    if torch is not None and isinstance(generator, torch.Generator):
        return "torch"
    raise BadArgument(
        f"generator {name!r} is a {type(generator).__qualname__}; expected random.Random, "
        "numpy.random.Generator or torch.Generator"
    )


def _get(name: str, generator: Any) -> Any:
    kind = _kind(name, generator)
    if kind == "python":
        return generator.getstate()
    if kind == "numpy":
        return generator.bit_generator.state
    return generator.get_state()


def _set(name: str, generator: Any, state: Any) -> None:
    kind = _kind(name, generator)
    if kind == "python":
        generator.setstate(state)
    elif kind == "numpy":
        generator.bit_generator.state = state
    else:
        generator.set_state(state)
