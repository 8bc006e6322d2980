"""Two servers on one PostgreSQL: how long no write is possible after the leader was killed, paused or cut off.

Under a load of submits the leader is killed -9 so many times; after every fifth kill it is also paused (SIGSTOP) and
continued, and the database is restarted or crashed. PostgreSQL runs with fsync, as in production. The time counts
until the answer to the first submit that was begun after the disturbance (after the database was back, for those of
the database). The reference is one submit with nothing disturbed, measured in the same run.
"""

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

from bench.harness import result
from tests import postgres
from tests.crash.failover import LIMIT_S, Failover, Round, planned

LOST = ("no accepted job is lost", "everything that can run, runs")
DOUBLED = ("one key makes one job", "no id is given out twice", "no job runs twice at once", "an attempt starts once")
STALE = ("a former leader commits nothing", "a former leader plans nothing")


def tell(failover: Failover) -> None:
    """Print the figures of each kind of disturbance, and what was lost."""
    quiet_s = statistics.median(end - begin for begin, end in failover.load.accepted_s)
    reference = {"name": "median of all submits of the run, s", "value": round(quiet_s, 4)}
    kinds: dict[str, list[Round]] = {}
    for each in failover.rounds:
        kinds.setdefault(each.kind, []).append(each)
    for kind, rounds in kinds.items():
        name = f"failover_{kind.replace(' ', '_')}"
        found = sorted(each.outage_s for each in rounds)
        result(f"{name}_p50_s", statistics.median(found), "s", "lower", LIMIT_S, reference)
        result(f"{name}_worst_s", found[-1], f"s, {len(found)} rounds", "lower", LIMIT_S, reference)
    accepted = len(failover.load.accepted)
    result("failover_jobs_lost", failover.broken(*LOST), f"of {accepted} accepted", "lower", 0)
    result("failover_jobs_doubled", failover.broken(*DOUBLED), f"of {accepted} accepted", "lower", 0)
    result(
        "failover_commits_of_former_leaders",
        failover.broken(*STALE),
        f"of {failover.counts['plans']} plans",
        "lower",
        0,
    )
    result("failover_other_findings", len(failover.findings) - failover.broken(*LOST, *DOUBLED, *STALE), "", "lower", 0)
    result("failover_terms", failover.counts["terms"], f"in {failover.counts['records']} records", "higher", None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=50, help="how often the leader is killed")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="three kills")
    options = parser.parse_args()
    kinds = planned(3 if options.quick else options.rounds)
    with tempfile.TemporaryDirectory(prefix="penstock-failover-") as folder, postgres.own(sync=True) as database:
        failover = Failover(Path(folder), database, seed=options.seed)
        failover.run(kinds)
    tell(failover)
    for promise, detail in failover.findings[:30]:
        print(f"{promise}: {detail}", file=sys.stderr)
    late = [each for each in failover.rounds if each.outage_s > LIMIT_S]
    sys.exit(bool(failover.findings or late))


if __name__ == "__main__":
    main()
