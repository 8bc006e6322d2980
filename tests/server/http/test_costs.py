"""No request costs more than the budget of its operation, whoever sends it and whatever it says.

Each operation of the document is asked for the most expensive that its limits allow, by the least role that may, and
for what is just beyond; the server has a long past, and where the whole of it must not matter, a crowd of jobs of
somebody else. CPU time is measured, never how long something took.
"""

from collections.abc import Iterator

import pytest

from penstock.server.http.budgets import (
    AGENTS_MS,
    BUDGETS,
    NOTHING,
    REFUSED_ANSWER_KIB,
    REFUSED_CONTROL_MS,
    SERVER_MEMORY_MIB,
    CostBudget,
)
from tests.properties import LONG
from tests.server.costs import actions, changes, declarations, past, reads, submits
from tests.server.costs.cases import Case
from tests.server.costs.world import API, Cost, World

OUTSIDE = {"GET /openapi.json": BUDGETS["GET /health"]}
"""What is served without being an operation of the document."""
QUIET = [*submits.cases(slow=LONG), *changes.cases(), *actions.changes(), *declarations.cases()]
CROWDED = [case for case in (*reads.cases(), *actions.counts()) if not case.operation.startswith("GET /eta")]
FORESEEN = [case for case in reads.cases() if case.operation.startswith("GET /eta")]
"""A crowd is too large to be played on: a smaller state is what costs most."""
TRIES = 3


def _world(tmp_path_factory: pytest.TempPathFactory, waiting: int) -> Iterator[World]:
    data = tmp_path_factory.mktemp("past") / "data"
    past.write(data, waiting)
    made = World(data, tmp_path_factory.mktemp("costs"))
    try:
        yield made
    finally:
        made.close()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    yield from _world(tmp_path_factory, past.WAITING)


@pytest.fixture(scope="module")
def crowd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    yield from _world(tmp_path_factory, past.CROWD)


def test_every_operation_has_a_budget_and_inputs_and_nothing_else_has(world):
    paths = world.server.http("GET", f"{API}/openapi.json").json()["paths"]
    documented = {f"{method.upper()} {path.removeprefix(API)}" for path, found in paths.items() for method in found}
    assert sorted(documented ^ BUDGETS.keys()) == [], "operations without a budget, or budgets without an operation"
    tried = {case.operation for case in (*QUIET, *CROWDED, *FORESEEN)}
    assert sorted(documented - tried) == [], "operations without a costly input"
    assert sorted(tried - documented - OUTSIDE.keys()) == [], "inputs without an operation"


@pytest.mark.parametrize("case", QUIET, ids=lambda case: case.id)
def test_a_change_costs_no_more_than_its_budget(world, case):
    _check(world, case)


@pytest.mark.parametrize("case", CROWDED, ids=lambda case: case.id)
def test_a_read_costs_no_more_than_its_budget_however_many_jobs_others_have(crowd, case):
    _check(crowd, case)


@pytest.mark.parametrize("case", FORESEEN, ids=lambda case: case.id)
def test_a_question_about_what_is_ahead_costs_no_more_than_its_budget(world, case):
    _check(world, case)


def _check(world: World, case: Case) -> None:
    for _ in range(1 if case.renews else TRIES):  # what the server does by itself is not the request's
        cost = world.cost(case.make(), case.caller)
        if not over(case, cost):
            break
    if case.renews:
        world.close()
    assert over(case, cost) == {}, cost


def over(case: Case, cost: Cost) -> dict[str, object]:
    """Return what a request took beyond what it may, each with what it may."""
    count = max(1, len(cost.statuses))
    budget = BUDGETS.get(case.operation) or OUTSIDE[case.operation]
    refused = all(status >= 400 for status in cost.statuses)
    budget = NOTHING if case.beyond else refusal(budget) if refused else budget
    taken = {
        "cpu_ms": (cost.cpu_ms / count, budget.cpu_ms),
        "memory_mib": (cost.memory_mib, budget.memory_mib * count),
        "log_kib": (cost.log_kib / count, budget.log_kib),
        "loop_ms": (cost.loop_ms, budget.loop_ms),
        "control_ms": (cost.control_ms, budget.control_ms),
        "pause_ms": (cost.pause_ms, budget.pause_ms),
        "agents_ms": (cost.agents_ms, AGENTS_MS),
        "peak_mib": (cost.peak_mib, SERVER_MEMORY_MIB),
        "answer_kib": (cost.answer_bytes / 1024 if refused else 0, REFUSED_ANSWER_KIB),
    }
    found: dict[str, object] = {name: pair for name, pair in taken.items() if pair[0] > pair[1]}
    if not set(cost.statuses) <= case.statuses:
        found["statuses"] = sorted(set(cost.statuses))
    if cost.ended:
        found["ended"] = cost.ended
    return found


def refusal(budget: CostBudget) -> CostBudget:
    """Return what may be spent on something that is read, and then refused."""
    return CostBudget(
        budget.cpu_ms,
        budget.memory_mib,
        NOTHING.log_kib,
        budget.loop_ms,
        min(budget.control_ms, REFUSED_CONTROL_MS),
        budget.pause_ms,
    )
