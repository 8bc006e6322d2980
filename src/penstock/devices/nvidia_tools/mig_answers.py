"""What `nvidia-smi` answers to orders for MIG: instances that it made and destroyed, refusals, the mode."""

import re

from penstock.devices.nvidia_tools.mig_facts import (
    NAME,
    REASONS,
    Change,
    MigReading,
    Mode,
    N,
    Notes,
    Refusal,
    lines_of,
    refused,
    sentence,
    unread,
)
from penstock.devices.reading import Finding, pci_address

_CREATED = re.compile(
    rf"Successfully created (?:GPU instance ID +{N} on GPU +{N}|"
    rf"compute instance ID +{N} on GPU +{N} GPU instance ID +{N}) using profile {NAME} \(ID +{N}\)"
)
_DESTROYED = re.compile(
    rf"Successfully destroyed (?:GPU instance ID +{N} from GPU +{N}|"
    rf"compute instance ID +{N} from GPU +{N} GPU instance ID +{N})"
)
_UNABLE = re.compile(
    rf"Unable to (?:create|destroy) a? ?(?:GPU|compute) instance(?: ID +{N})? (?:on|from|in) GPU +{N}"
    rf"(?: GPU instance ID +{N})?(?: using profile {N})?: (\S.{{0,80}})"
)
_ADDRESS = r"([0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7])"
_SWITCHED = re.compile(rf"(Enabled|Disabled) MIG Mode for GPU {_ADDRESS}")
_PENDING = re.compile(rf"Warning: MIG mode is in pending (enable|disable) state for GPU {_ADDRESS} ?: ?(\S.{{0,80}})")
_RESTART = re.compile(rf"Reboot the system or try nvidia-smi --gpu-reset to make MIG mode effective on GPU {_ADDRESS}")
_BUSY = re.compile(rf"{_ADDRESS} is currently being used by one or more other processes .*")
_PLAIN = re.compile(r"(?:Warning: persistence mode is disabled on device .*|All done\.)")


def answer(text: str) -> MigReading:
    """Return what an order did: `-cgi`, `-cci`, `-dci`, `-dgi`, and `nvidia-smi -mig 0|1`.

    An output may hold both changes that were made and one that was refused: what was made stays.
    """
    changes: list[Change] = []
    refusals: list[Refusal] = []
    modes: dict[str, Mode] = {}
    notes = Notes()
    for line in lines_of(text, notes):
        if change := _change(line):
            changes.append(change)
        elif match := _UNABLE.fullmatch(line):
            refusals.append(_refusal(line, match))
            notes.add(refused(line, refusals[-1].reason, gpu=int(match[2])))
        elif mode := _mode(line, modes):
            modes[mode.pci] = mode
        elif not _PLAIN.fullmatch(line) and not _BUSY.fullmatch(line):
            notes.add(sentence(line) or unread(line))
    for mode in modes.values():
        if not mode.effective:
            notes.add(
                Finding(code="mig_pending", pci=mode.pci, text="the MIG mode changes at the next reset or restart")
            )
    if not changes and not modes and not notes.all:
        notes.add(Finding(code="cut", text="the answer names no device"))
    return MigReading(
        changes=tuple(dict.fromkeys(changes)),
        refusals=tuple(dict.fromkeys(refusals)),
        modes=tuple(modes.values()),
        findings=notes.all,
    )


def _change(line: str) -> Change | None:
    if match := _CREATED.fullmatch(line):
        name, profile = match[6], int(match[7])
        if match[1]:
            return Change(done="created", instance=int(match[1]), gpu=int(match[2]), name=name, profile=profile)
        return Change(
            done="created", compute_instance=int(match[3]), gpu=int(match[4]), instance=int(match[5]), name=name,
            profile=profile,
        )  # fmt: skip
    if match := _DESTROYED.fullmatch(line):
        if match[1]:
            return Change(done="destroyed", instance=int(match[1]), gpu=int(match[2]))
        return Change(done="destroyed", compute_instance=int(match[3]), gpu=int(match[4]), instance=int(match[5]))
    return None


def _refusal(line: str, match: re.Match[str]) -> Refusal:
    compute = " compute instance" in line.partition(":")[0]
    own = int(match[1]) if match[1] else None
    outer = int(match[3]) if match[3] else None
    return Refusal(
        reason=REASONS.get(match[5].rstrip(".").lower(), "other"),
        gpu=int(match[2]),
        instance=outer if compute else own,
        compute_instance=own if compute else None,
        profile=int(match[4]) if match[4] else None,
    )


def _mode(line: str, known: dict[str, Mode]) -> Mode | None:
    if match := _SWITCHED.fullmatch(line):
        pci, wanted = pci_address(match[2]), match[1] == "Enabled"
        return Mode(pci=pci, wanted=wanted, effective=pci not in known or known[pci].effective)
    if match := _PENDING.fullmatch(line):
        return Mode(pci=pci_address(match[2]), wanted=match[1] == "enable", effective=False)
    if match := _RESTART.fullmatch(line):
        pci = pci_address(match[1])
        return Mode(pci=pci, wanted=known[pci].wanted if pci in known else None, effective=False)
    return None
