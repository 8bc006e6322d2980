"""A simulated `nvidia-smi` that fails at random moments, and holds after each call that no rule was broken."""

import random

from penstock.devices.provider import Output
from penstock.devices.simulated_mig import SimulatedMig

CHANGES = {"-cgi", "-cci", "-dci", "-dgi"}
UNKNOWN = Output("Failed to create compute instances: Unknown Error\n", code=3)
FAULTS = ("refused", "lost", "done_lost", "cut", "half", "killed_before", "killed_after")


class Killed(BaseException):
    """The agent's process ended here."""


class FaultySmi:
    """Passes calls on to the simulated tool.

    Args:
        table: the published places of the model, which each state of each device has to obey.
        rate: how many of a hundred calls go wrong.
    """

    def __init__(self, smi: SimulatedMig, table, seed, *, rate=0) -> None:
        self.smi, self.table, self.rate = smi, table, rate
        self.random = random.Random(seed)
        self.calls: list[tuple[str, ...]] = []
        self.owned: dict[str, tuple[int, tuple[str, int]]] = {}
        """What owners have for sure: device and place. Nothing of it may go."""

    def run(self, *command, limit_s=0.0):
        self.calls.append(command)
        wrong = self.random.random() * 100 < self.rate
        fault = self.random.choice(FAULTS) if wrong else ""
        if fault == "killed_before":
            raise Killed
        if fault == "lost":
            return Output(timed_out=True)
        if fault == "refused":
            return UNKNOWN
        if fault == "half" and "-cgi" in command:
            self._pass_on(command[:-1])  # without -C
            return self.random.choice((Output(timed_out=True), UNKNOWN))
        output = self._pass_on(command)
        if fault == "killed_after":
            raise Killed
        if fault == "done_lost":
            return Output(timed_out=True)
        if fault == "cut":
            return Output(output.text[: self.random.randrange(len(output.text))], code=output.code)
        return output

    def _pass_on(self, command):
        open_before = self.open_instances()
        output = self.smi.run(*command)
        if CHANGES & set(command):
            lies = [self.smi.lies(gpu) for gpu in range(len(self.smi.devices))]
            for layout in lies:
                assert self.table.is_legal(layout), layout
            for gpu, place in (*self.owned.values(), *open_before):
                assert place in lies[gpu], (command, place)
        return output

    def open_instances(self):
        return [
            (gpu, (one.profile, one.start))
            for gpu, there in self.smi.state().instances.items()
            for one in there
            if one.processes
        ]

    def read(self, path):
        return ""

    def glob(self, pattern):
        return []
