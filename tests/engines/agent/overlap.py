"""A witness of what runs: programs note begin and end in a file, and who of the same job runs beside them."""

from collections import Counter
from pathlib import Path

_NOTED = """
for pid in $(sed -n "s/^begin $PENSTOCK_JOB_ID [0-9]* //p" {file}); do
    if [ -e /proc/$pid/exe ]; then echo "beside $PENSTOCK_JOB_ID $PENSTOCK_ATTEMPT $pid" >> {file}; fi
done
echo "begin $PENSTOCK_JOB_ID $PENSTOCK_ATTEMPT $$" >> {file}
{command}
echo "end $PENSTOCK_JOB_ID $PENSTOCK_ATTEMPT $$" >> {file}
"""


class Witness:
    """Keeps one file, which must lie on another disk than that of the nodes."""

    def __init__(self, file: Path) -> None:
        self.file = file
        file.touch()

    def command(self, command: str) -> str:
        """Return a command that does the same, and notes it."""
        return _NOTED.format(file=self.file, command=command)

    def problems(self) -> list[str]:
        """Return which jobs ran twice at once, or to their end twice."""
        lines = [line.split() for line in self.file.read_text().splitlines()]
        ends = Counter(job for what, job, *_ in lines if what == "end")
        found = [f"job {job}: attempt {attempt} beside {pid}" for what, job, attempt, pid in lines if what == "beside"]
        return found + [f"job {job} ended {count} times" for job, count in ends.items() if count > 1]
