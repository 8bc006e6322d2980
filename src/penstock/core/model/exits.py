"""How a replica of a job ended."""

import msgspec

from penstock.core.model.measured import Measured


class ExitInfo(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a replica ended, exactly as the kernel reported: one of `code` and `signal` is set.

    Neither is set when the status is unknown: `problem` then says why (never started, or lost with its node).
    """

    code: int | None = None
    signal: int | None = None
    stop_sent: bool = False
    """The agent had asked it to stop before it ended."""
    done: bool = False
    """The program declared its work complete."""
    problem: str = ""
    note: str = ""
    """What else is known, such as a host memory limit that was hit; of older versions also the last error."""
    observed: bool = False
    """The node itself observed what `note` says; else it is output of the program, which proves nothing."""
    last_error: str = ""
    """The last error that the program printed."""
    measured: Measured | None = None
    """What it used of its devices; None: not measured."""

    @property
    def ok(self) -> bool:
        return self.code == 0 or self.done

    def text(self) -> str:
        """Return a short description for people, such as `exit 3`, `signal 9` or the problem."""
        note = f" ({notes})" if (notes := "; ".join(filter(None, (self.last_error, self.note)))) else ""
        if self.code is not None:
            return f"exit {self.code}{note}"
        if self.signal is not None:
            return f"signal {self.signal}{note}"
        return self.problem or "unknown"
