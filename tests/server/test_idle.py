"""A real program that says it waits for data: it is named, and makes room once somebody waits."""

from penstock.core.model.events import AttemptStopRequested, IdleNoted
from tests.server.harness import Jobs, Server, cluster_file, until

STARVED = r"""
trap 'echo saved; exit 0' TERM
step=0
while :; do
  step=$((step + 1))
  line='{"kind":"progress","step":%d,"time_ms":%d,"data_wait":0.97}\n'
  printf "$line" $step $(date +%s%3N) >> $PENSTOCK_REPORT_FILE
  [ $step = 3 ] && echo '{"kind":"checkpoint","step":3}' >> $PENSTOCK_REPORT_FILE
  sleep 0.3
done
"""


def test_an_idle_program_is_named_and_leaves_for_who_waits(tmp_path):
    given = cluster_file(1, 1) | {"queues": [{"name": "default", "idle": {"after": "1s", "reclaim": "when_wanted"}}]}
    with Server(tmp_path / "data", given) as server:
        jobs, client = Jobs(server.client), server.client
        starved = jobs.submit(["sh", "-c", STARVED], devices=1)
        shown = until(lambda: (job := client.job(starved)).reason and job, "it is named", 30)
        assert shown.reason.startswith("idle for ")
        assert shown.reason.endswith("it waits for data 97 % of the time")
        assert "it saves and leaves as soon as a job waits" in client.explain(starved).text
        wanted = jobs.submit("true", devices=1)
        assert jobs.ended(wanted).state == "succeeded"
        events = [record.event for record in client.job_events(starved)]
        (noted,) = [event for event in events if isinstance(event, IdleNoted)]
        assert (noted.cause, noted.reclaim) == ("data", True)
        (stop,) = [event for event in events if isinstance(event, AttemptStopRequested)]
        assert (stop.reason, stop.rule, stop.beneficiary) == ("preempted", "held_idle", wanted)
        assert "saved" in jobs.output(starved)
        (row,) = [row for row in client.waste("job").rows if row.job == starved]
        assert row.data_milli_ms > 0
        jobs.close()
