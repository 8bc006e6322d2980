"""File names of outputs: `slurm-%j.out`, `%A_%3a.log`. Source: sbatch(1), srun(1), "filename pattern"."""

import re
from collections.abc import Mapping

NO_INDEX = 4_294_967_294
"""What `%a` is outside of arrays."""
WIDTH_MAX = 10
_SYMBOL = re.compile(r"%(?:(%)|([0-9]{0,9})([AabJjNnstux]))")


def file_name(pattern: str, values: Mapping[str, str | int]) -> str:
    """Return a pattern with its symbols replaced; a backslash in it switches all of them off.

    Args:
        values: by symbol, such as `j`; numbers are padded to a width, texts are not.
    """
    if "\\" in pattern:
        return pattern.replace("\\", "")

    def put(match: re.Match[str]) -> str:
        if match[1]:
            return "%"
        value = values.get(match[3])
        if value is None:
            return match[0]
        width = min(int(match[2] or 0), WIDTH_MAX)
        return f"{value:0{width}}" if isinstance(value, int) and width else str(value)

    return _SYMBOL.sub(put, pattern)


def symbols(
    *,
    job: int,
    name: str,
    user: str,
    node: str,
    node_id: int = 0,
    task: int = 0,
    step: str = "batch",
    array: tuple[int, int] | None = None,
) -> dict[str, str | int]:
    """Return what each symbol stands for; `array` is the array's number and the index."""
    first, index = array or (job, NO_INDEX)
    return {
        "A": first,
        "a": index,
        "b": index % 10,
        "J": f"{job}.{step}",
        "j": job,
        "N": node,
        "n": node_id,
        "s": step,
        "t": task,
        "u": user,
        "x": name,
    }
