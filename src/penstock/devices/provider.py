"""What the devices of one vendor are reached by: the interface that every provider implements.

A provider turns what its vendor's library, tools and kernel files say into a `Reading`. It is called in a process of
its own (`penstock.devices.process`), which is ended when a call takes too long: so it may simply call what can hang.
It asks for everything through `Sources`, so that recorded outputs can stand in for a machine.

Further vendors: a package names an object with this interface under the entry point group `penstock.devices`, and runs
`penstock.testing.devices.check_provider` on recorded outputs.
"""

import os
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from penstock.core.model.resources import Device
from penstock.devices.reading import INPUT_MAX, Reading

TOOL_LIMIT_S = 20.0
"""For one run of a vendor's tool; the process of the provider has a limit of its own."""


class Output(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a tool printed. `code` is None where it did not run or was ended."""

    text: str = ""
    error_text: str = ""
    code: int | None = None
    missing: bool = False
    """There is no such tool."""
    timed_out: bool = False

    @property
    def passed(self) -> bool:
        return self.code == 0


class Sources(Protocol):
    """Where a provider reads from: a machine, or recordings of one."""

    def run(self, *command: str, limit_s: float = TOOL_LIMIT_S) -> Output:
        """Run a vendor's tool by its name; never raises for what the tool does."""
        ...

    def read(self, path: str) -> str:
        """Return a text file by its absolute path; '' where there is none or it cannot be read."""
        ...

    def glob(self, pattern: str) -> list[str]:
        """Return the absolute paths that match an absolute pattern, ascending."""
        ...


class DeviceProvider(Protocol):
    """One vendor's devices on this machine. A missing library or driver is no error: a finding names it."""

    @property
    def vendor(self) -> str:
        """As in `Device.vendor` and in job files."""
        ...

    @property
    def variables(self) -> tuple[str, ...]:
        """Environment variables that list the devices which a program sees, by `uuid` or else by index."""
        ...

    @property
    def files(self) -> tuple[str, ...]:
        """Patterns of the device files that a program opens to use a device, such as `/dev/nvidia[0-9]*`."""
        ...

    def is_present(self, sources: Sources) -> bool:
        """Return whether such devices, or their driver, may be here. Cheap: files only, no tool is run."""
        ...

    def inventory(self, sources: Sources) -> Reading:
        """Return the devices with all that stays the same, links between them, and findings. May take seconds.

        Their indexes count from 0, as the variables count.
        """
        ...

    def sample(self, sources: Sources) -> Reading:
        """Return what changes: use, memory, temperature, power, clocks, errors, processes, findings. Every second.

        Devices are named as in `inventory` by index, uuid or address. A device that is missing is gone.
        """
        ...

    def closed_files(self, given: Iterable[Device], here: Iterable[Device]) -> tuple[str, ...]:
        """Return the device files, as `c MAJOR:MINOR`, that a program may not open.

        Args:
            given: what the program may use, of all vendors.
            here: all devices of the node.
        """
        ...

    def container_flags(self, given: Sequence[Device]) -> tuple[str, ...]:
        """Return the options of `docker run` (and podman) that give a container these devices and no others."""
        ...


class Machine:
    """The machine that this process runs on.

    Args:
        root: where its files are: `/`, or the place where a container sees the host's.
        inherited: descriptors that stay open in the tools it runs, for a lock that lasts as long as they do.
    """

    def __init__(self, root: Path = Path("/"), inherited: tuple[int, ...] = ()) -> None:
        self._root, self._inherited = root, inherited

    def run(self, *command: str, limit_s: float = TOOL_LIMIT_S) -> Output:
        try:
            done = subprocess.run(  # noqa: S603 - the tools of a provider, no words of users
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=limit_s,
                check=False,
                cwd="/",
                pass_fds=self._inherited,
                env={**os.environ, "LC_ALL": "C"},
            )
        except FileNotFoundError:
            return Output(missing=True)
        except subprocess.TimeoutExpired:
            return Output(timed_out=True)
        except OSError as error:
            return Output(error_text=str(error))
        return Output(_text(done.stdout), _text(done.stderr), done.returncode)

    def read(self, path: str) -> str:
        try:
            with open(self._within(path), "rb") as file:  # dozens of small files a second: no Path
                return _text(file.read(INPUT_MAX))
        except OSError:
            return ""

    def glob(self, pattern: str) -> list[str]:
        return sorted(f"/{path.relative_to(self._root)}" for path in self._root.glob(pattern.lstrip("/")))

    def _within(self, path: str) -> Path:
        return self._root / path.lstrip("/")


def _text(raw: bytes) -> str:
    return raw[: INPUT_MAX + 1].decode("utf-8", errors="replace")
