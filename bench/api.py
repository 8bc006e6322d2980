"""Hot paths of the API under load by wrk (Debian package `wrk`), with 16 connections on this machine's cores.

Authenticated reads: a job by its number, as a member of one tenant (so its scope is looked up and checked) and as the
local administrator. Durable submits: each is answered after its commit is on disk. wrk runs on the same cores as the
server, so both share them. The reference is the same server's answer that needs no token and no state (`/health`).
"""

import argparse
import re
import shutil
import subprocess
import tempfile

from bench.harness import Server, result, server

CONNECTIONS = 16
UNITS = {"us": 1e-3, "ms": 1.0, "s": 1000.0, "m": 60_000.0}
CLUSTER = {
    "tenants": ["default", "vision"],
    "users": [{"name": "ann", "tenants": {"vision": "member"}}],
    "settings": {"job_account": "root"},
    "nodes": [{"name": "bench", "cpus": 64, "memory": "16GiB"}],
}
POST = 'wrk.method = "POST"\nwrk.body = \'{"command": ["true"], "name": "n", "tenant": "vision"}\'\n'


def wrk(running: Server, path: str, token: str, seconds: float, script: str = "") -> tuple[float, float, float]:
    """Return requests a second, and the 50th and 99th percentile of their times (ms)."""
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as lua:
        lua.write(script + f'wrk.headers["Authorization"] = "Bearer {token}"\n')
        lua.flush()
        url = f"http://{running.address[0]}:{running.address[1]}/api/v1{path}"
        command = ["wrk", "-t1", f"-c{CONNECTIONS}", f"-d{seconds:g}s", "--latency", "-s", lua.name, url]
        told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    refused = re.search(r"Non-2xx or 3xx responses: (\d+)", told)
    if refused:
        raise SystemExit(f"{path}: {refused[1]} requests were refused\n{told}")
    rate = re.search(r"Requests/sec:\s+([0-9.]+)", told)
    assert rate is not None, told
    return float(rate[1]), _percentile(told, 50), _percentile(told, 99)


def _percentile(told: str, percent: int) -> float:
    found = re.search(rf"{percent}%\s+([0-9.]+)(us|ms|s|m)\b", told)
    assert found is not None, told
    return float(found[1]) * UNITS[found[2]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="shorter")
    arguments = parser.parse_args()
    if shutil.which("wrk") is None:
        raise SystemExit("wrk is missing: apt install wrk")
    seconds = 2 if arguments.quick else 8
    with server(declared=CLUSTER, limits={"requests_per_s": 10**6, "requests_burst": 10**7}) as running:
        running.client.drain("bench")
        ann = running.client.create_token({"user": "ann", "level": "write"}).token
        job = running.client.submit({"command": ["true"], "name": "one", "tenant": "vision"}).jobs[0].id
        health, _, _ = wrk(running, "/health", ann, seconds)
        reference = {"name": "answers that need no token and no state, per s", "value": round(health, 1)}
        for who, token in (("", ann), ("_admin", running.token)):
            rate, p50, p99 = wrk(running, f"/jobs/{job}", token, seconds)
            result(f"reads{who}_per_s", rate, "reads/s", "higher", 2_000, reference)
            result(f"read{who}_p99_over_p50", p99 / p50, "ratio", "lower", 10)
        rate, p50, p99 = wrk(running, "/jobs", ann, seconds, POST)
        result("submits_per_s", rate, "submits/s", "higher", 1_000, reference)
        result("submit_p99_over_p50", p99 / p50, "ratio", "lower", 10)


if __name__ == "__main__":
    main()
