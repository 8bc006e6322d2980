"""Dependencies between the entries of one request: their order, and the cycle that would wait for ever.

An entry leads to the names that it waits for, and a name to all entries that have it. So each dependency is looked at
once, however many entries share a name.
"""

from collections.abc import Iterator

from penstock.core.messages.requests import NewJob
from penstock.core.model.errors import PROBLEMS_MAX, Problem, nearest

CYCLE_NAMED_MAX = 10
NAME_SHOWN_MAX = 64
Node = int | str
"""An entry by its place, or a name that entries have."""


def sorted_by_dependency(jobs: list[NewJob], problems: list[Problem]) -> tuple[NewJob, ...]:
    """Return entries so that each follows its dependencies; a cycle and names that no entry has are problems."""
    if not any(job.after_names for job in jobs):
        return tuple(jobs)
    graph = _Graph(jobs)
    problems += graph.unknown()
    if not problems:
        for start in range(len(jobs)):
            cycle = graph.visit(start)
            if cycle is not None:
                problems.append(cycle)
                break
    return () if problems else tuple(jobs[i] for i in graph.order)


class _Graph:
    def __init__(self, jobs: list[NewJob]) -> None:
        self._jobs = jobs
        self._by_name: dict[str, list[int]] = {}
        for index, job in enumerate(jobs):
            self._by_name.setdefault(job.spec.name, []).append(index)
        self._done: dict[Node, bool] = {}
        """Whether an entry or a name is finished; unfinished ones are on the path from the start."""
        self.order: list[int] = []

    def unknown(self) -> list[Problem]:
        """Return the first dependencies on names that no entry has; the first of them with a hint."""
        found: list[Problem] = []
        for job in self._jobs:
            for name, kind in job.after_names:
                if name in self._by_name:
                    continue
                where, short = f"{job.field}.{kind}".lstrip("."), _short(name)
                text = f"{where}: no job of this request is named '{short}'"
                hint = "" if found else nearest(name, self._by_name)
                hint = hint or "use the number of a job that was submitted before"
                found.append(Problem("unknown_job", where, text, short, hint))
                if len(found) == PROBLEMS_MAX:
                    return found
        return found

    def visit(self, start: int) -> Problem | None:
        """Go depth-first, without recursion, to all that `start` waits for; return the first cycle."""
        if start in self._done:
            return None
        way: list[tuple[Node, Iterator[Node]]] = [(start, self._following(start))]
        self._done[start] = False
        while way:
            at, left = way[-1]
            following = next(left, None)
            if following is None:
                self._done[at] = True
                if isinstance(at, int):
                    self.order.append(at)
                way.pop()
            elif following not in self._done:
                self._done[following] = False
                way.append((following, self._following(following)))
            elif not self._done[following]:
                return self._cycle([node for node, _ in way], following)
        return None

    def _following(self, node: Node) -> Iterator[Node]:
        if isinstance(node, str):
            return iter(self._by_name[node])
        return (name for name, _ in self._jobs[node].after_names)

    def _cycle(self, way: list[Node], closing: Node) -> Problem:
        """Return the problem of a path whose last node leads back to an earlier one."""
        round_trip = [node for node in way[way.index(closing) :] if isinstance(node, int)]
        names = [self._jobs[node].spec.name for node in round_trip]
        at = next(node for node in reversed(way) if isinstance(node, int))
        wanted = self._jobs[closing].spec.name if isinstance(closing, int) else closing
        kind = next(kind for name, kind in self._jobs[at].after_names if name == wanted)
        shown = [_short(name) for name in (*names[: CYCLE_NAMED_MAX - 1], names[0])]
        if len(names) >= CYCLE_NAMED_MAX:
            shown.insert(-1, "...")
        text = "these jobs wait for each other: " + " -> ".join(shown)
        if len(names) >= CYCLE_NAMED_MAX:
            text += f" ({len(names)} jobs)"
        where = f"{self._jobs[at].field}.{kind}".lstrip(".")
        return Problem("dependency_cycle", where, text, _short(names[0]), "remove one of these dependencies")


def _short(name: str) -> str:
    return name if len(name) <= NAME_SHOWN_MAX else name[: NAME_SHOWN_MAX - 3] + "..."
