"""Python functions as jobs, from the first submit to the last value: against the same jobs by the bare API.

The reference submits the very same jobs (programs that call the function) by bulk over one connection, and waits until
the server counts all of them as succeeded; no value is brought back. All ways take turns: the machine may have other
work.
"""

import argparse
import time
from collections.abc import Callable

import msgspec

from bench.harness import LeanClient, Server, result, server
from penstock.client import Client, PenstockExecutor
from penstock.client.bulk import batches, prepared

CPUS = 4
"""Functions at work at once: each is a Python of its own, and the machine has few cores."""
LIMIT = 0.5
"""Share of the bare API's rate, 2026-11."""


def square(number: int) -> int:
    return number * number


def seconds(run: Callable[[], object]) -> float:
    begun = time.perf_counter()
    run()
    return time.perf_counter() - begun


def bare(running: Server, client: Client, count: int, name: str) -> None:
    """Submit the jobs of calls by bulk, and wait for them through the API."""
    before = running.client.cluster().jobs_succeeded
    lean = LeanClient(running.address, running.token, running.trusted)
    calls = (prepared(client, square, [number], {"cpus": 1}, None) for number in range(count))
    for number, batch in enumerate(batches(calls)):
        lean.submit(msgspec.json.encode([one.job for one in batch]), f"{name}-{number}")
    while running.client.cluster().jobs_succeeded < before + count:
        time.sleep(0.02)


NOOP = {"command": ["true"], "cpus": 1}


def bare_commands(running: Server, count: int, name: str) -> None:
    """The same for commands that do nothing: what remains is the server's work, and the client's."""
    before = running.client.cluster().jobs_succeeded
    LeanClient(running.address, running.token, running.trusted).submit(msgspec.json.encode([NOOP] * count), name)
    while running.client.cluster().jobs_succeeded < before + count:
        time.sleep(0.02)


def commands(client: Client, count: int) -> None:
    ended = client.handles(client.submit([NOOP] * count).jobs).wait()
    assert ended == ["succeeded"] * count


def mapped(client: Client, count: int) -> None:
    assert list(client.map(square, range(count), cpus=1)) == [number * number for number in range(count)]


def one_by_one(client: Client, count: int) -> None:
    jobs = [client.submit(square, number, cpus=1) for number in range(count)]
    assert [job.result() for job in jobs] == [number * number for number in range(count)]


def executed(client: Client, count: int) -> None:
    with PenstockExecutor(client, cpus=1) as executor:
        assert list(executor.map(square, range(count))) == [number * number for number in range(count)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the functions")
    quick = parser.parse_args().quick
    count, rounds = (50, 2) if quick else (250, 4)
    ways: dict[str, Callable[[Client, int], None]] = {"map": mapped, "submit": one_by_one, "executor": executed}
    taken_s = dict.fromkeys(("bare", "bare_commands", "commands", *ways), 0.0)
    with server(CPUS) as running, Client.connect(data=running.data) as client:
        bare(running, client, 20, "warm")
        for number in range(rounds):
            taken_s["bare_commands"] += seconds(
                lambda number=number: bare_commands(running, count, f"commands-{number}")
            )
            taken_s["commands"] += seconds(lambda: commands(client, count))
            taken_s["bare"] += seconds(lambda number=number: bare(running, client, count, f"bare-{number}"))
            for name, way in ways.items():
                taken_s[name] += seconds(lambda way=way: way(client, count))
    rates = {name: rounds * count / spent_s for name, spent_s in taken_s.items()}
    bare_rate, bare_commands_rate, commands_rate = (rates.pop(name) for name in ("bare", "bare_commands", "commands"))
    known = {"name": "the same commands by bulk over the bare API, jobs/s", "value": round(bare_commands_rate, 1)}
    result("sdk_commands_share_of_bare_api", commands_rate / bare_commands_rate, "ratio", "higher", LIMIT, known)
    reference = {"name": "the same jobs by bulk over the bare API, jobs/s", "value": round(bare_rate, 1)}
    for name, rate in rates.items():
        result(f"sdk_{name}_functions_per_s", rate, "functions/s", "higher", None, reference)
        result(f"sdk_{name}_share_of_bare_api", rate / bare_rate, "ratio", "higher", LIMIT, reference)


if __name__ == "__main__":
    main()
