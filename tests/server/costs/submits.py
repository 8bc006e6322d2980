"""Requests for jobs that cost the server most: for `POST /jobs` and `POST /plan`, which read the same body."""

import json
from collections.abc import Callable, Iterator
from typing import Any

from penstock.server.http.parsing import BODY_MAX_BYTES
from tests.server.costs.cases import EITHER, GOOD, REFUSED, Case, sending

JOB: dict[str, Any] = {"command": "true"}
Body = Callable[[], Any]


def _array() -> Any:
    return {**JOB, "array": 100_000}


def _beyond_array() -> Any:
    return {**JOB, "array": 100_001}


def _many_alike() -> Any:
    return [JOB] * 100_000


def _beyond_many() -> Any:
    return [JOB] * 100_001


def _many_different() -> Any:
    return [{**JOB, "name": f"job-{i}"} for i in range(100_000)]


def _arrays_of_large_jobs() -> Any:
    return {"command": "true", "array": 250, "env": {f"V{i}": "x" * 60_000 for i in range(17)}}


def _beyond_large_job() -> Any:
    return {"command": "true", "env": {f"V{i}": "x" * 60_000 for i in range(18)}}


def _largest_jobs() -> Any:
    return [{"command": "true", "name": f"n{i}", "env": {f"V{j}": "x" * 60_000 for j in range(17)}} for i in range(60)]


def _array_after_array() -> Any:
    """Each of the second waits for each of the first: billions of pairs in a few bytes."""
    return [{**JOB, "name": "a", "array": 50_000}, {**JOB, "name": "b", "array": 50_000, "after_any": "a"}]


def _arrays_in_a_chain() -> Any:
    names = [f"a{i}" for i in range(20)]
    first = [{**JOB, "name": names[0], "array": 300}]
    return first + [{**JOB, "name": n, "array": 300, "after_any": names[:i]} for i, n in enumerate(names) if i]


def _cycle() -> Any:
    """Each job waits for the one before and closes a cycle with the first."""
    names = [f"{i:04}" + "n" * 250 for i in range(2_800)]
    return [{**JOB, "name": name, "after_ok": [names[i - 1], names[-1]]} for i, name in enumerate(names)]


def _unknown_dependencies() -> Any:
    names = [f"job-number-{i:05}" for i in range(1_000)]
    return [{**JOB, "name": name, "after_ok": [f"job_numbr_{i:05}_{j}" for j in range(50)]} for i, name in
            enumerate(names)]  # fmt: skip


def _long_chain() -> Any:
    return [{**JOB, "name": "j0"}] + [{**JOB, "name": f"j{i}", "after_ok": f"j{i - 1}"} for i in range(1, 50_000)]


def _dense_graph() -> Any:
    names = [f"j{i}" for i in range(1_000)]
    return [{**JOB, "name": name, "after_any": names[:i] or None} for i, name in enumerate(names)]


def _names_alike() -> Any:
    """Each of the second name waits for each of the first."""
    return [{**JOB, "name": "a"}] * 4_000 + [{**JOB, "name": "b", "after_any": "a"}] * 4_000


def _own_name() -> Any:
    """Each waits for all of its own name, itself among them."""
    return [{**JOB, "name": "a", "after_any": "a"}] * 3_000


def _half_a_sign() -> bytes:
    return b'{"command": "\\ud800", "name": "\\udfff", "env": {"\\ud800": "x"}}'


def _million_numbers() -> Any:
    return {**JOB, "after_any": list(range(100_000, 1_100_000))}


def _wrong_dependencies() -> Any:
    return {**JOB, "after_ok": [True] * 1_000_000}


def _unknown_secrets() -> Any:
    return {**JOB, "secrets": {f"V{i}": f"SECRET_{i}_{'y' * 40}" for i in range(2_500)}}


def _unknown_fields() -> Any:
    return {**JOB, **{f"comand_{i:06}": 1 for i in range(50_000)}}


def _defaults_of_many_fields() -> Any:
    return {"defaults": {f"f{i}": 1 for i in range(20_000)}, "jobs": [{}] * 10_000}


def _defaults_with_large_env() -> Any:
    return {"defaults": {**JOB, "env": {"V": "x" * 200_000}}, "jobs": [{"name": f"n{i}"} for i in range(20_000)]}


def _long_names() -> Any:
    return {
        "command": "c" * 65_000,
        "name": "n" * 65_536,
        "queue": "q" * 65_536,
        "tenant": "team",
        "pool": "p" * 65_536,
    }


def _many_variables() -> Any:
    return {**JOB, "env": {f"V{i}": "x" for i in range(70_000)}, "labels": {f"L{i}": "x" for i in range(5_000)}}


def _wrong_variables() -> Any:
    return {**JOB, "env": {f"V{i}=": [] for i in range(500_000)}}


def _duration_of_many_parts() -> Any:
    return {**JOB, "time_limit": "1ms" * 5_000_000}


def _digits() -> Any:
    long = "9" * 16_000_000
    return {**JOB, "memory": f"{long}GiB", "time_limit": f"0.{long}", "bandwidth": f"{long}Gbps"}


def _huge_numbers() -> bytes:
    return b'{"command": "true", "cpus": 1e308, "time_limit": 1e308, "memory": 1e308, "priority": 1e999999}'


def _long_number() -> bytes:
    return b'{"command": "true", "cpus": ' + b"9" * 4_000_000 + b"}"


def _deep() -> bytes:
    return b'{"command": "true", "labels": ' + b"[" * 4_000_000


def _deep_within_limit() -> bytes:
    return b'{"command": "true", "devices": ' + b"[" * 900 + b"]" * 900 + b"}"


def _wide_wrong_value() -> bytes:
    return b'{"command": "true", "devices": [' + b"1," * (20 * 2**20) + b"1]}"


def _gang(number: int = 0) -> dict[str, Any]:
    """Return a shape of 64 groups beside the first that would fit into the empty cluster; none is like another."""
    groups = [{"replicas": 10, "devices": 1, "cpus": 1, "memory": 1 + i + 64 * number} for i in range(64)]
    return {"replicas": 200 + number % 9, "devices": 1, "groups": groups}


def _gangs() -> Any:
    return {**JOB, **_gang(), "alternatives": [_gang(1 + i) for i in range(8)]}


def _many_of_groups() -> Any:
    return [{**JOB, **_gang(9 * i), "alternatives": [_gang(9 * i + j) for j in range(1, 9)]} for i in range(100)]


def _many_gangs() -> Any:
    return [{**JOB, "replicas": 1_500, "devices": 1, "cpus": 0.001 * (1 + i % 990), "memory": i} for i in range(5_000)]


def _different_shapes() -> Any:
    return [{**JOB, "devices": 1, "cpus": 1, "memory": i} for i in range(50_000)]


def _node_labels() -> Any:
    return {**JOB, "node_labels": {"shunned": {f"L{i}": "x" for i in range(60_000)}}}


def _models() -> Any:
    return {**JOB, "devices": {"count": 1, "model": [f"m{i}" for i in range(100_000)]}}


def _unicode() -> Any:
    return {
        **JOB,
        "name": "\U0001f600" * 65_536,
        "labels": {"\u202e" * 1_000 + str(i): "\ud7ff" * 100 for i in range(50)},
    }


def _beyond_body() -> bytes:
    return b" " * (BODY_MAX_BYTES + 1)


def _spaces() -> bytes:
    return b" " * (BODY_MAX_BYTES - 20) + b'{"command": "true"}'


def _many_lists() -> bytes:
    return b"[" + b"[]," * (20 * 2**20) + b"[]]"


BODIES: dict[str, tuple[Body, frozenset[int], bool, bool]] = {
    # name: body, statuses, beyond a limit, begins the server anew
    "an array of 100,000": (_array, GOOD, False, True),
    "an array of 100,001": (_beyond_array, REFUSED, True, False),
    "100,000 jobs that are alike": (_many_alike, GOOD, False, True),
    "100,001 jobs that are alike": (_beyond_many, REFUSED, False, False),
    "100,000 different jobs": (_many_different, GOOD, False, True),
    "50,000 different shapes": (_different_shapes, EITHER, False, True),
    "an array of large jobs": (_arrays_of_large_jobs, EITHER, False, True),
    "the largest jobs in the largest body": (_largest_jobs, EITHER, False, True),
    "a job over a MiB": (_beyond_large_job, REFUSED, True, False),
    "an array after an array": (_array_after_array, EITHER, False, True),
    "twenty arrays after each other": (_arrays_in_a_chain, EITHER, False, True),
    "a cycle with long names": (_cycle, REFUSED, False, False),
    "unknown names to wait for": (_unknown_dependencies, REFUSED, False, False),
    "a chain of 50,000": (_long_chain, EITHER, False, True),
    "each after all before": (_dense_graph, EITHER, False, True),
    "names that are alike": (_names_alike, EITHER, False, True),
    "each after its own name": (_own_name, REFUSED, False, False),
    "half a sign": (_half_a_sign, REFUSED, False, False),
    "a million numbers to wait for": (_million_numbers, REFUSED, False, False),
    "a million wrong things to wait for": (_wrong_dependencies, REFUSED, False, False),
    "unknown secrets": (_unknown_secrets, REFUSED, False, False),
    "50,000 unknown fields": (_unknown_fields, REFUSED, False, False),
    "defaults of many fields": (_defaults_of_many_fields, REFUSED, False, False),
    "defaults with a large environment": (_defaults_with_large_env, EITHER, False, True),
    "long names": (_long_names, REFUSED, False, False),
    "many variables": (_many_variables, EITHER, False, True),
    "wrong variables": (_wrong_variables, REFUSED, False, False),
    "a duration of many parts": (_duration_of_many_parts, REFUSED, False, False),
    "millions of digits": (_digits, REFUSED, False, False),
    "huge numbers": (_huge_numbers, REFUSED, False, False),
    "a number of many digits": (_long_number, REFUSED, False, False),
    "nested too deep": (_deep, REFUSED, False, False),
    "nested deep": (_deep_within_limit, REFUSED, False, False),
    "a wide wrong value": (_wide_wrong_value, REFUSED, False, False),
    "the largest gangs": (_gangs, EITHER, False, True),
    "100 of the largest gangs": (_many_of_groups, EITHER, False, True),
    "5,000 different gangs": (_many_gangs, EITHER, False, True),
    "many labels of nodes": (_node_labels, EITHER, False, True),
    "many models": (_models, EITHER, False, True),
    "signs of all planes": (_unicode, EITHER, False, True),
    "20 million lists": (_many_lists, REFUSED, False, False),
    "mostly spaces": (_spaces, GOOD, False, False),
    "a body over the limit": (_beyond_body, REFUSED, True, False),
}


PLANNED = (
    "an array of 100,000",
    "100,000 different jobs",
    "50,000 different shapes",
    "an array after an array",
    "a cycle with long names",
    "a duration of many parts",
    "defaults of many fields",
    "100 of the largest gangs",
    "a body over the limit",
)
"""What plans are tried with, unless there is time for all: they are read as submits are."""
UNREADABLE = ("a cycle with long names", "the largest jobs in the largest body", "50,000 unknown fields")


def cases(*, slow: bool) -> Iterator[Case]:
    for name, (body, statuses, beyond, renews) in BODIES.items():
        asked = sending("POST", "/jobs", body, Idempotency_Key=name.ljust(200, "."))
        yield Case("POST /jobs", name, "member", asked, statuses, beyond, renews)
        if slow or name in PLANNED:
            yield Case("POST /plan", name, "member", sending("POST", "/plan", body), EITHER, beyond)
    for name in UNREADABLE:
        for path in ("/jobs", "/plan"):
            asked = sending("POST", path, BODIES[name][0])
            yield Case(f"POST {path}", f"{name}, by who may only read", "reader", asked, frozenset({403}), True)
    beyond_key = sending("POST", "/jobs", lambda: json.dumps(JOB).encode(), Idempotency_Key="k" * 201)
    yield Case("POST /jobs", "a key of 201 characters", "member", beyond_key, REFUSED, True)
