"""What Slurm's words for the state of a job mean here, and how a job ended by its state and code.

Source: https://slurm.schedmd.com/squeue.html#SECTION_JOB-STATE-CODES; tried with Slurm 22.05.
"""

from typing import Literal

from penstock.core.model.jobs import ExitInfo

Phase = Literal["waiting", "running", "leaving", "ended", "again"]
"""`leaving`: its programs have ended and its nodes are cleaned up; `again`: this run is over, the job comes back."""

PHASES: dict[str, Phase] = {
    "PENDING": "waiting", "CONFIGURING": "running", "RUNNING": "running", "SUSPENDED": "running",
    "STOPPED": "running", "SIGNALING": "running", "STAGE_OUT": "running", "RESIZING": "running",
    "EXPEDITING": "running",
    "COMPLETING": "leaving",
    "REQUEUED": "again", "REQUEUE_HOLD": "again", "REQUEUE_FED": "again", "SPECIAL_EXIT": "again",
    "RESV_DEL_HOLD": "waiting",
    "COMPLETED": "ended", "FAILED": "ended", "CANCELLED": "ended", "TIMEOUT": "ended", "PREEMPTED": "ended",
    "NODE_FAIL": "ended", "OUT_OF_MEMORY": "ended", "BOOT_FAIL": "ended", "DEADLINE": "ended", "REVOKED": "ended",
    "LAUNCH_FAILED": "ended", "RECONFIG_FAIL": "ended",
}  # fmt: skip
CUT_OFF = frozenset({"PREEMPTED", "NODE_FAIL", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED"})
"""States of a run that another run of the same job may follow."""
NOTES = {
    "TIMEOUT": "time limit reached",
    "OUT_OF_MEMORY": "out of memory",
    "NODE_FAIL": "a node failed",
    "BOOT_FAIL": "a node did not boot",
    "DEADLINE": "its deadline passed",
    "PREEMPTED": "preempted",
    "LAUNCH_FAILED": "it could not be launched",
}
"""What is known of an end beside its code."""
OUT_OF_MEMORY_STATUS = 125
"""Slurm's own mark in place of a signal."""


class UnknownState(ValueError):
    """A word that this version does not know."""


def phase_of(state: str) -> Phase:
    """Return where a job is. Raises: UnknownState: nothing is assumed of a word that is new."""
    word = word_of(state)
    found = PHASES.get(word)
    if found is None:
        raise UnknownState(word)
    return found


def word_of(state: str) -> str:
    """Return the state alone: `CANCELLED` of `CANCELLED by 1000`, and without the marks of nodes."""
    return state.split(" ")[0].split("+")[0].rstrip("*").upper()


def exit_of(state: str, code: int, signal: int) -> ExitInfo:
    """Return how a run ended. Only a job that Slurm calls completed has succeeded.

    Args:
        code, signal: as Slurm has them; both 0 where it says nothing.
    """
    word = word_of(state)
    if word == "COMPLETED":
        return ExitInfo(0)
    stopped = word in ("CANCELLED", "PREEMPTED") or phase_of(state) == "again"
    note = NOTES.get(word, "")
    if signal == OUT_OF_MEMORY_STATUS:
        signal, note = 9, note or NOTES["OUT_OF_MEMORY"]
    if signal:
        return ExitInfo(signal=signal, stop_sent=stopped, note=note, observed=bool(note))
    if code:
        return ExitInfo(code, stop_sent=stopped, note=note, observed=bool(note))
    if stopped:
        return ExitInfo(problem=f"Slurm: {word}", stop_sent=True)
    return ExitInfo(1, note=note or f"Slurm says {word}, and no code", observed=True)


def of_status(status: int) -> tuple[int, int]:
    """Return (code, signal) of a wait status, as `squeue -O exit_code` prints it."""
    return status >> 8 & 0xFF, status & 0x7F


def of_pair(text: str) -> tuple[int, int]:
    """Return (code, signal) of `3:0`, as sacct prints it. Raises: ValueError."""
    code, _, signal = text.partition(":")
    return int(code or 0), int(signal or 0)
