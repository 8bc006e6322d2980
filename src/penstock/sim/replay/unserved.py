"""Jobs of a trace that its cluster could never start, in the words of the refusal that a server would answer."""

from penstock.core.lifecycle.never_fits import never_fits
from penstock.core.lifecycle.requests import could_never_fit, empty_cluster
from penstock.core.model.jobs import JobSpec
from penstock.core.model.words import counted
from penstock.core.state.state import State
from penstock.sim.replay.replay import opened
from penstock.traces.model import Trace


def unserved_note(trace: Trace) -> str:
    """Return how many jobs no set of the trace's nodes could hold, and why not the first of them; "" where none."""
    state = opened(trace)
    served: dict[int, bool] = {}
    count, first = 0, None
    for job in trace.jobs:
        key = id(job.spec)
        if key not in served:
            served[key] = _fits(state, job.spec)
        if not served[key]:
            count, first = count + 1, first or job
    if first is None:
        return ""
    problem = never_fits(
        state, empty_cluster(state), first.spec, "", could_never_fit(state, first.spec.ask), hinted=False
    )
    hint = f" ({problem.hint})" if problem.hint else ""
    who = f"{counted(count, 'job')} can never start on these nodes; of the first, {first.name}"
    return f"{who}: {problem.message}{hint}"


def _fits(state: State, spec: JobSpec) -> bool:
    return any(not could_never_fit(state, ask) for ask in (spec.ask, *spec.alternatives))
