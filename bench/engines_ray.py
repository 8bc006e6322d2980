"""The Ray engine: no-op jobs end to end on four raylets of this machine, and how soon one job runs on an idle server.

The physical limit, measured in the same run, is a bare posix_spawn loop of the same no-op.
"""

import statistics
import tempfile
from pathlib import Path

from bench.end_to_end import bare_spawn_per_s, in_bulk, latencies_ms, one_by_one
from bench.harness import Server, result

RAY_NODES, RAY_CPUS = 4, 16


def measure(*, quick: bool = False) -> None:
    """Four raylets and a head; Ray's own Job API starts about 1.5 jobs/s, each after 770 ms (Ray 2.60)."""
    from tests.engines.ray.cluster import RayCluster
    from tests.engines.ray.serving import RayServing

    count = 200 if quick else 2_000
    limit = {"name": "bare posix_spawn loop, jobs/s", "value": round(bare_spawn_per_s(count), 1)}
    cluster = RayCluster(RAY_NODES, RAY_CPUS)
    try:
        cluster.start()
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            (root / "shared").mkdir()
            with RayServing(root / "data", cluster, shared=root / "shared", heartbeat="3s") as serving:
                assert serving.process is not None
                running = Server(serving.data.root, serving.process.pid)
                waits = sorted(latencies_ms(running, 20 if quick else 60))
                single, bulk = one_by_one(running, count), in_bulk(running, count)
        result("ray_jobs_per_s", bulk, "jobs/s", "higher", 150, limit)
        result("ray_jobs_per_s_single", single, "jobs/s", "higher", 150, limit)
        result("ray_latency_p50_ms", statistics.median(waits), "ms", "lower", 100)
        result("ray_latency_p95_ms", waits[int(len(waits) * 0.95)], "ms", "lower", 400)
    finally:
        cluster.remove()
