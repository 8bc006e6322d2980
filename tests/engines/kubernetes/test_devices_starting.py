"""Pods that have devices and are not bound yet, by name and uid."""

import msgspec

from penstock.engines.kubernetes.devices.tidying import Starting
from penstock.engines.kubernetes.objects.pods import Pod


def pod(uid):
    return msgspec.convert({"metadata": {"name": "p", "namespace": "a", "uid": uid}, "spec": {}}, Pod)


def test_a_start_that_is_given_up_late_does_not_end_that_of_the_next_pod_of_the_name():
    starting = Starting()
    starting.begin([(pod("new"), "n1", ())], due_s=5.0)
    starting.end(pod("old"))
    assert starting.overdue(5.0) == [(pod("new"), "n1")]
    starting.end(pod("new"))
    assert pod("new").key not in starting
