"""The API server for tests answers as the real one does."""

import pytest

from penstock.sim.apiserver.kinds import bind, evict, usual_kinds
from penstock.sim.apiserver.pods import set_condition
from penstock.sim.apiserver.refusals import Refused
from penstock.sim.apiserver.selecting import matcher
from penstock.sim.apiserver.store import Store, merged, seen_by, strategically_merged

NOW, IN_30_S = "2026-11-24T09:00:00Z", "2026-11-24T09:00:30Z"
ALL = matcher("", "")


@pytest.fixture
def store():
    return Store(usual_kinds(), lambda: NOW)


def pods(store):
    return store.kind("", "pods")


def pod(store, name="a", namespace="default", labels=None, **spec):
    body = {
        "metadata": {"name": name, "labels": labels or {}},
        "spec": {"containers": [{"name": "c", "image": "none"}], **spec},
    }
    return store.create(pods(store), namespace, body)


def binding(store, name="a", node="n1", **meta):
    bind(store, pods(store), "default", {"metadata": {"name": name, **meta}, "target": {"kind": "Node", "name": node}})
    return store.get(pods(store), ("default", name))


def refused(code, reason):
    return pytest.raises(Refused, check=lambda error: (error.code, error.reason) == (code, reason))


def test_a_pod_gets_its_defaults(store):
    made = pod(store)
    assert made["spec"]["schedulerName"] == "default-scheduler"
    assert made["status"]["phase"] == "Pending"
    assert [t["key"] for t in made["spec"]["tolerations"]] == [
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
    ]


def test_a_limit_becomes_the_request(store):
    limits = {"resources": {"limits": {"nvidia.com/gpu": "2", "cpu": "4"}, "requests": {"cpu": "1"}}}
    made = pod(store, containers=[{"name": "c", "image": "none", **limits}])
    assert made["spec"]["containers"][0]["resources"]["requests"] == {"nvidia.com/gpu": "2", "cpu": "1"}


def test_a_priority_comes_from_its_class(store):
    store.create(store.kind("scheduling.k8s.io", "priorityclasses"), "", {"metadata": {"name": "high"}, "value": 1000})
    assert pod(store, priorityClassName="high")["spec"]["priority"] == 1000
    with refused(403, "Forbidden"):
        pod(store, "b", priorityClassName="absent")


def test_a_name_is_taken_once_and_a_generated_one_is_free(store):
    pod(store)
    with refused(409, "AlreadyExists"):
        pod(store)
    body = {"metadata": {"generateName": "w-"}, "spec": {"containers": [{"name": "c", "image": "none"}]}}
    names = {store.create(pods(store), "default", body)["metadata"]["name"] for _ in range(3)}
    assert len(names) == 3


def test_each_write_is_a_version_and_one_that_changes_nothing_is_none(store):
    made = pod(store)
    same = store.update(pods(store), ("default", "a"), lambda one: one)
    assert same["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]


def test_an_outdated_write_is_a_conflict(store):
    old = pod(store)
    store.update(pods(store), ("default", "a"), lambda one: merged(one, {"metadata": {"labels": {"x": "y"}}}))
    with refused(409, "Conflict"):
        store.update(pods(store), ("default", "a"), lambda _: old)
    assert store.get(pods(store), ("default", "a"))["metadata"]["labels"] == {"x": "y"}


def test_a_status_is_written_through_its_own_resource_alone(store):
    pod(store)
    key, change = ("default", "a"), {"status": {"phase": "Running"}, "metadata": {"labels": {"x": "y"}}}
    usual = store.update(pods(store), key, lambda one: merged(one, change))
    assert (usual["status"]["phase"], usual["metadata"]["labels"]) == ("Pending", {"x": "y"})
    status = store.update(
        pods(store), key, lambda one: merged(one, {**change, "spec": {"nodeName": "n"}}), part="status"
    )
    assert (status["status"]["phase"], status["spec"].get("nodeName")) == ("Running", None)


def test_a_generation_counts_the_changes_of_a_spec(store):
    node = {"metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "4"}}}
    kind = store.kind("", "nodes")
    assert store.create(kind, "", node)["status"] == {"allocatable": {"cpu": "4"}}, (
        "a kubelet registers with its status"
    )
    changed = store.update(kind, ("", "n"), lambda one: merged(one, {"spec": {"unschedulable": True}}))
    labelled = store.update(kind, ("", "n"), lambda one: merged(one, {"metadata": {"labels": {"x": "y"}}}))
    assert [one["metadata"]["generation"] for one in (changed, labelled)] == [2, 2]


# Bindings.


def test_a_binding_assigns_once_and_brings_annotations(store):
    pod(store)
    bound = binding(store, annotations={"penstock.dev/rank": "0"})
    assert (bound["spec"]["nodeName"], bound["metadata"]["annotations"]) == ("n1", {"penstock.dev/rank": "0"})
    assert bound["status"]["conditions"][0]["type"] == "PodScheduled"
    with refused(409, "Conflict"):
        binding(store, node="n2")


def test_a_binding_is_for_the_pod_that_was_seen(store):
    first = pod(store)["metadata"]
    store.delete(pods(store), ("default", "a"))
    second = pod(store)["metadata"]
    with refused(409, "Conflict"):
        binding(store, uid=first["uid"])
    store.update(pods(store), ("default", "a"), lambda one: merged(one, {"metadata": {"labels": {"x": "y"}}}))
    with refused(409, "Conflict"):
        binding(store, uid=second["uid"], resourceVersion=second["resourceVersion"])
    assert binding(store, uid=second["uid"])["spec"]["nodeName"] == "n1"


def test_a_gated_or_leaving_pod_is_not_bound(store):
    pod(store, schedulingGates=[{"name": "x"}])
    with refused(409, "Conflict"):
        binding(store)
    with refused(422, "Invalid"):
        binding(store, node="")
    with refused(404, "NotFound"):
        binding(store, "absent")
    store.create(pods(store), "default", {
        "metadata": {"name": "b", "finalizers": ["x"]}, "spec": {"containers": [{"name": "c", "image": "none"}]},
    })  # fmt: skip
    store.delete(pods(store), ("default", "b"))
    with refused(409, "Conflict"):
        binding(store, "b")


def test_gates_are_lifted_and_never_added(store):
    pod(store, schedulingGates=[{"name": "x"}])
    key = ("default", "a")
    assert store.get(pods(store), key)["status"]["conditions"][0]["reason"] == "SchedulingGated"
    lifted = store.update(pods(store), key, lambda one: merged(one, {"spec": {"schedulingGates": []}}))
    assert lifted["spec"]["schedulingGates"] == []
    with refused(422, "Invalid"):
        store.update(pods(store), key, lambda one: merged(one, {"spec": {"schedulingGates": [{"name": "x"}]}}))
    with refused(422, "Invalid"):
        store.update(pods(store), key, lambda one: merged(one, {"spec": {"nodeName": "n1"}}))


# Deletes and evictions.


def test_a_bound_pod_leaves_when_its_kubelet_lets_go(store):
    pod(store)
    binding(store)
    marked = store.delete(pods(store), ("default", "a"))
    assert (marked["metadata"]["deletionTimestamp"], marked["metadata"]["deletionGracePeriodSeconds"]) == (IN_30_S, 30)
    store.delete(pods(store), ("default", "a"), 0)
    with refused(404, "NotFound"):
        store.get(pods(store), ("default", "a"))


def test_a_finalizer_holds_an_object(store):
    kind = store.kind("", "configmaps")
    store.create(kind, "default", {"metadata": {"name": "m", "finalizers": ["x"]}})
    store.delete(kind, ("default", "m"))
    assert store.get(kind, ("default", "m"))["metadata"]["deletionTimestamp"] == NOW
    store.update(kind, ("default", "m"), lambda one: merged(one, {"metadata": {"finalizers": None}}))
    assert not store.all_of("configmaps")


def test_a_delete_is_for_the_object_that_was_seen(store):
    pod(store)
    with refused(409, "Conflict"):
        store.delete(pods(store), ("default", "a"), uid="another")
    assert "deletionTimestamp" not in store.get(pods(store), ("default", "a"))["metadata"]


RUNS = {"status": {"phase": "Running"}}


def budget(store, allowed):
    kind = store.kind("policy", "poddisruptionbudgets")
    spec = {"selector": {"matchLabels": {"app": "x"}}}
    store.create(kind, "default", {"metadata": {"name": "b"}, "spec": spec})
    store.update(kind, ("default", "b"), lambda one: {**one, "status": {"disruptionsAllowed": allowed}}, part="status")


def test_an_eviction_stays_within_the_budget(store):
    budget(store, 1)
    for name in ("a", "b"):
        pod(store, name, labels={"app": "x"})
        binding(store, name)
        store.update(pods(store), ("default", name), lambda one: merged(one, RUNS), part="status")
    evict(store, pods(store), "default", "a", {})
    with refused(429, "TooManyRequests"):
        evict(store, pods(store), "default", "b", {})
    left = store.get(pods(store), ("default", "a"))
    assert left["metadata"]["deletionTimestamp"] == IN_30_S
    assert {c["type"] for c in left["status"]["conditions"]} == {"PodScheduled", "DisruptionTarget"}
    assert "deletionTimestamp" not in store.get(pods(store), ("default", "b"))["metadata"]


def test_a_pod_that_waits_or_has_ended_costs_no_disruption(store):
    budget(store, 0)
    pod(store, labels={"app": "x"})
    evict(store, pods(store), "default", "a", {})
    pod(store, "b", labels={"app": "x"})
    binding(store, "b")
    store.update(pods(store), ("default", "b"), lambda one: merged(one, {"status": {"phase": "Failed"}}), part="status")
    evict(store, pods(store), "default", "b", {})
    assert not store.all_of("pods")


def test_a_condition_keeps_its_time_until_it_changes(store):
    made = pod(store)
    set_condition(made, "X", "False", "Why", "once", "t1")
    set_condition(made, "X", "False", "Why", "twice", "t2")
    assert made["status"]["conditions"][-1]["lastTransitionTime"] == "t1"
    set_condition(made, "X", "True", "", "", "t3")
    assert made["status"]["conditions"][-1]["lastTransitionTime"] == "t3"


# Selectors, watches and patches.


@pytest.mark.parametrize(
    ("labels", "fields", "found"),
    [
        ("", "", "ab"), ("app=x", "", "a"), ("app==x", "", "a"), ("app!=x", "", "b"), ("app", "", "a"),
        ("!app", "", "b"), ("app in (x, y)", "", "a"), ("app notin (x),!other", "", "b"), ("", "metadata.name=b", "b"),
        ("", "status.phase!=Succeeded,spec.nodeName=", "ab"), ("app=x", "metadata.name=b", ""),
    ],
)  # fmt: skip
def test_selectors_select(store, labels, fields, found):
    pod(store, labels={"app": "x"})
    pod(store, "b")
    names = [one["metadata"]["name"] for one in store.select(pods(store), "default", matcher(labels, fields))]
    assert "".join(names) == found


def test_a_field_that_cannot_be_selected_is_refused():
    with refused(400, "BadRequest"):
        matcher("", "spec.restartPolicy=Always")


def test_a_watch_sees_what_enters_and_leaves_its_selection(store):
    pod(store)
    store.update(pods(store), ("default", "a"), lambda one: merged(one, {"metadata": {"labels": {"q": "1"}}}))
    store.update(pods(store), ("default", "a"), lambda one: merged(one, {"metadata": {"labels": {"q": "2"}}}))
    store.update(pods(store), ("default", "a"), lambda one: merged(one, {"metadata": {"labels": {"q": None}}}))
    store.delete(pods(store), ("default", "a"))
    seen = [seen_by(change, "default", matcher("q", "")) for change in store.since(pods(store), 1_000)]
    assert [one[0] if one else None for one in seen] == [None, "ADDED", "MODIFIED", "DELETED", None]
    assert seen[3][1]["metadata"]["labels"] == {"q": "2"}, "as it was last"
    assert seen[3][1]["metadata"]["resourceVersion"] == "1004", "at the version at which it left"
    assert all(seen_by(change, "other", ALL) is None for change in store.since(pods(store), 1_000))


def test_what_was_compacted_is_not_known(store):
    pod(store)
    store.compact()
    with refused(410, "Expired"):
        store.since(pods(store), 1_000)
    assert store.since(pods(store), store.version) == []


def test_a_merge_patch_replaces_lists_and_a_strategic_one_merges_conditions():
    old = {"conditions": [{"type": "A", "status": "False"}], "args": ["x"], "a": {"b": 1, "c": 2}}
    patch = {"conditions": [{"type": "B", "status": "True"}], "args": ["y"], "a": {"b": None}}
    assert merged(old, patch) == {"conditions": patch["conditions"], "args": ["y"], "a": {"c": 2}}
    both = [{"type": "A", "status": "False"}, {"type": "B", "status": "True"}]
    assert strategically_merged(old, patch) == {"conditions": both, "args": ["y"], "a": {"c": 2}}
    again = strategically_merged({"conditions": both}, {"conditions": [{"type": "A", "status": "True"}]})
    assert again["conditions"][0] == {"type": "A", "status": "True"}
