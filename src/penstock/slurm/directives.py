"""Batch scripts: which texts sbatch takes for one, and their `#SBATCH` lines.

Source: sbatch(1), and what sbatch of Slurm 22.05 does with such files.
"""

import shlex
from collections.abc import Mapping, Sequence

from penstock.slurm.options import OPTIONS, VARIABLES, Given, Unknown, option_of, read_words

MAGIC = "#SBATCH"
SCRIPT_MAX_BYTES = 4 * 2**20
"""As Slurm's MaxBatchScriptSize by default."""
_NO = ("0", "no", "false")


def check_script(text: str, name: str) -> None:
    """Raises: Unknown for what sbatch refuses as a batch script, with what to do about it."""
    if not text.strip():
        raise Unknown(f"{name} is empty: a batch script has a first line such as #!/bin/bash")
    if not text.startswith("#!"):
        raise Unknown(f"{name} is no batch script: its first line has to begin with #! and the path of an interpreter")
    if "\0" in text:
        raise Unknown(f"{name} is no batch script: it has a NUL character in it")
    if "\r\n" in text:
        raise Unknown(f"{name} has lines that end as in DOS (CRLF): make it plain, such as by dos2unix {name}")
    if not text.split("\n", 1)[0][2:].strip():
        raise Unknown(f"{name} names no interpreter after #!, such as #!/bin/bash")


def directives(text: str) -> list[Given]:
    """Return the options of a script's `#SBATCH` lines in order: those before its first command alone.

    Raises: Unknown naming the line.
    """
    found: list[Given] = []
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip() and not line.lstrip().startswith("#"):
            break
        if line.startswith(MAGIC) and line[len(MAGIC) :][:1].isspace():
            found += _line(line[len(MAGIC) :], f"line {number}")
    return found


def _line(text: str, where: str) -> list[Given]:
    try:
        words = shlex.split(text, comments=True)
    except ValueError as error:
        raise Unknown(f"{where}: {str(error).lower()}") from None
    if words[:1] in (["hetjob"], ["packjob"]):
        raise Unknown(f"{where}: a job has one component here: no {words[0]}")
    return read_words(words, where, one_only=True)[0]


def from_variables(environment: Mapping[str, str]) -> list[Given]:
    """Return the options that SBATCH_* variables stand for."""
    found = []
    for variable, name in VARIABLES.items():
        value = environment.get(variable)
        if value is None:
            continue
        flag = option_of(name).takes == "nothing"
        if not (flag and value.lower() in _NO):
            found.append(Given(name, "" if flag else value, variable))
    return found


class Options:
    """The options of a job, of each the one that holds: the last of the highest source.

    Args:
        sources: lowest first: directives, variables, command line.
    """

    def __init__(self, *sources: Sequence[Given]) -> None:
        self._given: dict[str, Given] = {}
        for source in sources:
            for one in source:
                self._given[one.name] = one
            names = {one.name for one in source}
            for name, other in (("requeue", "no-requeue"), ("no-requeue", "requeue")):
                if name in names and other not in names:
                    self._given.pop(other, None)
            self._one_memory(source)

    def _one_memory(self, source: Sequence[Given]) -> None:
        """Let the way in which a higher source asks for memory take the place of another way."""
        ways = ("mem", "mem-per-cpu", "mem-per-gpu")
        here = {one.name for one in source if one.name in ways}
        if here:
            for name in ways:
                if name not in here:
                    self._given.pop(name, None)

    def __contains__(self, name: str) -> bool:
        return name in self._given

    def __getitem__(self, name: str) -> Given:
        return self._given[name]

    def get(self, name: str, default: str = "") -> str:
        """Return the value of an option, or the default where it is not given."""
        one = self._given.get(name)
        return default if one is None else one.value

    def without(self, name: str) -> "Options":
        """Return the same options but for one."""
        return Options([one for one in self._given.values() if one.name != name])

    def left_out(self) -> list[str]:
        """Return a line for each option that has no meaning here, with the reason."""
        lines = []
        for option in OPTIONS:
            if option.left_out and option.name in self._given:
                one = self._given[option.name]
                value = f"={one.value}" if one.value else ""
                lines.append(f"--{option.name}{value} ({one.where}) is left out: {option.left_out}")
        return lines

    def refusals(self) -> list[str]:
        """Return a line for each option for which the script is not run, with the reason."""
        return [
            f"--{option.name} ({self._given[option.name].where}) is not supported: {option.refused}"
            for option in OPTIONS
            if option.refused and option.name in self._given
        ]
