"""Dependencies between the entries of one request: their order, and the cycles that would wait for ever."""

from typing import Literal

from penstock.core.errors import Problem, nearest
from penstock.core.lifecycle.requests import NewJob


def sorted_by_dependency(jobs: list[NewJob], problems: list[Problem]) -> tuple[NewJob, ...]:
    """Return entries so that each comes after those it names; names a cycle as a problem."""
    if not any(job.after_names for job in jobs):
        return tuple(jobs)
    by_name: dict[str, list[int]] = {}
    for index, job in enumerate(jobs):
        by_name.setdefault(job.spec.name, []).append(index)
    order: list[int] = []
    mark: dict[int, Literal["open", "done"]] = {}
    for start in range(len(jobs)):
        _visit(start, jobs, by_name, mark, order, problems)
    return tuple(jobs[i] for i in order) if not problems else ()


def _visit(
    start: int,
    jobs: list[NewJob],
    by_name: dict[str, list[int]],
    mark: dict[int, Literal["open", "done"]],
    order: list[int],
    problems: list[Problem],
) -> None:
    """Depth-first visit without recursion; an entry met again while open closes a cycle."""
    if start in mark:
        return
    stack: list[tuple[int, list[int]]] = [(start, _named(start, jobs, by_name, problems))]
    mark[start] = "open"
    while stack:
        index, left = stack[-1]
        if not left:
            mark[index] = "done"
            order.append(index)
            stack.pop()
            continue
        following = left.pop(0)
        if following not in mark:
            mark[following] = "open"
            stack.append((following, _named(following, jobs, by_name, problems)))
        elif mark[following] == "open":
            names = [jobs[i].spec.name for i, _ in stack]
            cycle = [*names[names.index(jobs[following].spec.name) :], jobs[following].spec.name]
            text = "these jobs wait for each other: " + " -> ".join(cycle)
            kind = next(kind for name, kind in jobs[index].after_names if name == jobs[following].spec.name)
            where = f"{jobs[index].field}.{kind}".lstrip(".")
            hint = "remove one of these dependencies"
            problems.append(Problem("dependency_cycle", where, text, cycle[-1], hint))


def _named(index: int, jobs: list[NewJob], by_name: dict[str, list[int]], problems: list[Problem]) -> list[int]:
    found: list[int] = []
    for name, kind in jobs[index].after_names:
        if name not in by_name:
            where = f"{jobs[index].field}.{kind}".lstrip(".")
            text = f"{where}: no job of this request is named '{name}'"
            hint = nearest(name, by_name) or "use the number of a job that was submitted before"
            problems.append(Problem("unknown_job", where, text, name, hint))
        found += by_name.get(name, [])
    return found
