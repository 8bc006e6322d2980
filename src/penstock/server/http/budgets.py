"""Upper bounds on what one request of each operation may cost the server.

Held by `tests/server/http/test_costs.py`, which sends each operation the most expensive input that its limits allow,
and input just beyond them. An operation without a budget fails there, and so does a budget without an operation.
docs/api-budgets.md is made from this table.
"""

import msgspec


class CostBudget(msgspec.Struct, frozen=True):
    """Upper bounds, three to five times what was measured; times are CPU time, so that other load changes little."""

    cpu_ms: int
    """Of the server and of the processes that it starts for it, until all that follows from the request is done."""
    memory_mib: int
    """Peak over what was in use before."""
    log_kib: int
    """Events written into the log."""
    loop_ms: int
    """The longest piece of work on the loop that answers requests."""
    control_ms: int
    """The longest time for which the commit thread serves no other request."""
    pause_ms: int = 250
    """The longest time for which one call keeps every other thread from running Python."""


NOTHING = CostBudget(cpu_ms=100, memory_mib=16, log_kib=1, loop_ms=20, control_ms=20, pause_ms=50)
"""Requests refused at a bound, or for lack of rights: nothing was read or computed for them."""
LIGHT = CostBudget(cpu_ms=150, memory_mib=16, log_kib=0, loop_ms=20, control_ms=20, pause_ms=60)
"""Reads of one thing, or of a short list."""
PAGE = CostBudget(cpu_ms=400, memory_mib=48, log_kib=0, loop_ms=30, control_ms=20, pause_ms=80)
"""Lists of up to a thousand entries."""
LISTING = CostBudget(cpu_ms=4_000, memory_mib=96, log_kib=0, loop_ms=30, control_ms=20, pause_ms=250)
"""A page of 100,000 live jobs, filtered and sorted."""
LOG = CostBudget(cpu_ms=1_500, memory_mib=128, log_kib=0, loop_ms=150, control_ms=20)
"""Pages of the log: up to 32 MiB."""
SEARCH = CostBudget(cpu_ms=1_500, memory_mib=32, log_kib=0, loop_ms=20, control_ms=20, pause_ms=80)
"""4 MiB of an output, or 2 MiB of reports."""
SUM = CostBudget(cpu_ms=6_000, memory_mib=160, log_kib=0, loop_ms=20, control_ms=20, pause_ms=400)
"""Folds of the whole log."""
DOCUMENT = CostBudget(cpu_ms=9_000, memory_mib=400, log_kib=0, loop_ms=20, control_ms=20)
"""An invoice of thousands of lines as a PDF."""
FORESIGHT = CostBudget(cpu_ms=15_000, memory_mib=400, log_kib=256, loop_ms=80, control_ms=100, pause_ms=400)
"""Simulation from the present state, five seconds at most, in a process of its own."""
LAB = CostBudget(cpu_ms=120_000, memory_mib=600, log_kib=0, loop_ms=30, control_ms=50, pause_ms=250)
"""Replays of the newest jobs of the log, in a process of its own at low priority, one at a time; of
`POST /config` with `simulate`, too."""
SUBMIT = CostBudget(cpu_ms=15_000, memory_mib=600, log_kib=80 * 1024, loop_ms=600, control_ms=8_000, pause_ms=600)
"""100,000 jobs, or 64 MiB of them."""
INTAKE = CostBudget(cpu_ms=4_000, memory_mib=200, log_kib=0, loop_ms=60, control_ms=20, pause_ms=250)
"""A list of 20,000 files, or 4 MiB of contents that are hashed and written."""
CHANGE = CostBudget(cpu_ms=200, memory_mib=16, log_kib=64, loop_ms=20, control_ms=50, pause_ms=60)
"""One thing is changed."""
ACTION = CostBudget(cpu_ms=10_000, memory_mib=200, log_kib=40 * 1024, loop_ms=30, control_ms=200, pause_ms=250)
"""One action on tens of thousands of jobs, changed in slices: between two of them the control thread serves others."""
ALL_SECRETS = CostBudget(cpu_ms=1_000, memory_mib=32, log_kib=4 * 1024, loop_ms=20, control_ms=100, pause_ms=100)
"""Every secret is sealed anew."""
INVOICE = CostBudget(cpu_ms=3_000, memory_mib=64, log_kib=2 * 1024, loop_ms=20, control_ms=100, pause_ms=100)
"""A month of a tenant, with a line for each job."""
DECLARE = CostBudget(cpu_ms=9_000, memory_mib=200, log_kib=8 * 1024, loop_ms=150, control_ms=1_000)
"""A cluster file of up to 16 MiB."""

BUDGETS: dict[str, CostBudget] = {
    "POST /jobs": SUBMIT,
    "GET /jobs": LISTING,
    "GET /jobs/{job_id}": LIGHT,
    "GET /jobs/{job_id}/explanation": PAGE,
    "GET /jobs/{job_id}/events": LIGHT,
    "GET /jobs/{job_id}/eta": LIGHT,
    "GET /jobs/{job_id}/diagnosis": LIGHT,
    "GET /jobs/{job_id}/outputs": LIGHT,
    "GET /jobs/{job_id}/logs": LIGHT,
    "GET /jobs/{job_id}/logs/search": SEARCH,
    "GET /jobs/{job_id}/attempts": LIGHT,
    "GET /jobs/{job_id}/series": LIGHT,
    "GET /jobs/{job_id}/reported": SEARCH,
    "POST /jobs/{job_id}/cancel": CHANGE,
    "POST /jobs/{job_id}/checkpoint": CHANGE,
    "POST /jobs/actions": ACTION,
    "GET /snapshots": PAGE,
    "DELETE /snapshots/{name}": CHANGE,
    "POST /snapshots": INTAKE,
    "POST /snapshots/chunks": INTAKE,
    "GET /health": LIGHT,
    "GET /me": LIGHT,
    "GET /cluster": LIGHT,
    "GET /nodes": PAGE,
    "GET /nodes/{node}": LIGHT,
    "GET /nodes/{node}/devices/{index}": LIGHT,
    "GET /devices": PAGE,
    "POST /nodes/{node}/drain": CHANGE,
    "POST /joined-nodes": CHANGE,
    "GET /joined-nodes": PAGE,
    "DELETE /joined-nodes/{node}": CHANGE,
    "POST /nodes/{node}/devices/{index}/close": CHANGE,
    "POST /nodes/{node}/devices/{index}/open": CHANGE,
    "GET /schema/job": LIGHT,
    "GET /schema/cluster": LIGHT,
    "GET /queues": LIGHT,
    "GET /pools": LIGHT,
    "GET /alerts": PAGE,
    "GET /defrag": PAGE,
    "GET /cycle": LIGHT,
    "POST /plan": FORESIGHT,
    "GET /eta": FORESIGHT,
    "GET /eta/calibration": SUM,
    "GET /events": LOG,
    "GET /events/stream": LOG,
    "GET /timeline": SUM,
    "GET /changes": PAGE,
    "GET /counts": LIGHT,
    "POST /login-links": LIGHT,
    "POST /logins": LIGHT,
    "POST /sessions": LIGHT,
    "GET /oidc": LIGHT,
    "POST /oidc/start": LIGHT,
    "POST /oidc/finish": LIGHT,
    "GET /series": SUM,
    "POST /whatif": LAB,
    "GET /whatif": LIGHT,
    "GET /whatif/{whatif_id}": LIGHT,
    "DELETE /whatif/{whatif_id}": LIGHT,
    "GET /bill": SUM,
    "GET /accounts": PAGE,
    "POST /accounts/{tenant}/credits": CHANGE,
    "GET /ledger": PAGE,
    "POST /ledger/{record}/reversal": CHANGE,
    "GET /invoices": PAGE,
    "POST /invoices": INVOICE,
    "GET /invoices/{number}": DOCUMENT,
    "POST /invoices/{number}/payments": CHANGE,
    "POST /invoices/{number}/corrections": INVOICE,
    "GET /tokens": PAGE,
    "POST /tokens": CHANGE,
    "DELETE /tokens/{token_id}": CHANGE,
    "GET /secrets": PAGE,
    "PUT /secrets/{name}": CHANGE,
    "DELETE /secrets/{name}": CHANGE,
    "POST /secret-key": ALL_SECRETS,
    "GET /schedules": PAGE,
    "GET /schedules/{name}": LIGHT,
    "PUT /schedules/{name}": CHANGE,
    "POST /schedules/{name}/actions": SUBMIT,
    "DELETE /schedules/{name}": CHANGE,
    "GET /notifications": PAGE,
    "PUT /notifications/{name}": CHANGE,
    "DELETE /notifications/{name}": CHANGE,
    "POST /notifications/{name}/test": CHANGE,
    "GET /usage": SUM,
    "GET /waste": SUM,
    "GET /quotas": LIGHT,
    "GET /config": LIGHT,
    "POST /config": DECLARE,
}

REFUSED_CONTROL_MS = 100
"""A refused request does not occupy the commit thread any longer, and writes nothing to the log."""
REFUSED_ANSWER_KIB = 256
"""Nor is its answer any larger."""
AGENTS_MS = 50
"""No request keeps the loop that hears the agents any longer."""
SERVER_MEMORY_MIB = 1_500
"""The whole server, under any of these requests."""


def budgets_table() -> str:
    """Return the page of the documents that shows the budgets."""
    columns = {
        "CPU, ms": "cpu_ms",
        "memory, MiB": "memory_mib",
        "log, KiB": "log_kib",
        "API loop, ms": "loop_ms",
        "control thread, ms": "control_ms",
        "pause, ms": "pause_ms",
    }
    lines = [
        "# What a request may cost",
        "",
        "From `server/http/budgets.py` by `make docs`. Upper bounds for one request of any sender and any content;",
        "`tests/server/http/test_costs.py` holds them against the most expensive input that the limits of each",
        "operation allow, and against what is just beyond. Times are CPU time on the machine of the tests. CPU: of",
        "the server and of processes that it starts for the request. API loop, control thread: the longest piece of",
        "work there. Pause: the longest time for which one call keeps every other thread waiting.",
        "",
        f"What is refused because of a bound, or because the caller may not, costs at most {NOTHING.cpu_ms} ms",
        f"and {NOTHING.memory_mib} MiB. What is refused leaves at most a record of the refusal,",
        "keeps the control thread for at most",
        f"{REFUSED_CONTROL_MS} ms, and is answered with at most {REFUSED_ANSWER_KIB} KiB. No request keeps the loop",
        f"that hears the agents for more than {AGENTS_MS} ms, and under none has the server more than",
        f"{SERVER_MEMORY_MIB} MiB.",
        "",
        f"| operation | {' | '.join(columns)} |",
        "|---|" + "---|" * len(columns),
    ]
    for operation, budget in BUDGETS.items():
        cells = " | ".join(f"{getattr(budget, field):,}" for field in columns.values())
        lines.append(f"| `{operation}` | {cells} |")
    return "\n".join(lines) + "\n"
