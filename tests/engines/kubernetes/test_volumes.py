"""The rules about volumes, as tables."""

import asyncio
import sys

import msgspec
import pytest

from penstock.core.model.selectors import LabelRule, accepted, terms_text
from penstock.engines.kubernetes.asks import NOWHERE, PAIRS_MAX, TERMS_MAX, all_of
from penstock.engines.kubernetes.objects.common import LabelSelector
from penstock.engines.kubernetes.objects.nodes import Node
from penstock.engines.kubernetes.objects.pods import Pod
from penstock.engines.kubernetes.objects.volumes import StorageCapacity, StorageClass, Volume, VolumeClaim
from penstock.engines.kubernetes.volumes import matching
from penstock.engines.kubernetes.volumes import stock as stocking
from penstock.engines.kubernetes.volumes import view as viewing
from penstock.engines.kubernetes.volumes.stock import Stock
from penstock.engines.kubernetes.volumes.view import Heard, VolumeView
from penstock.engines.kubernetes.volumes.volumes import Volumes

ZONE, HOST, BETA = "topology.kubernetes.io/zone", "kubernetes.io/hostname", "failure-domain.beta.kubernetes.io/zone"
REGION = "topology.kubernetes.io/region"
TENS = (range(20), range(19, 60))


def volume(size="10Gi", *terms, name="v", labels=None, phase="Available", ref=None, **spec):
    affinity = {"required": {"nodeSelectorTerms": list(terms)}} if terms else None
    body = {"capacity": {"storage": size}, "accessModes": ["ReadWriteOnce"], "storageClassName": "local", **spec}
    body |= {key: value for key, value in (("nodeAffinity", affinity), ("claimRef", ref)) if value is not None}
    meta = {"name": name, "labels": labels or {}}
    return msgspec.convert({"metadata": meta, "spec": body, "status": {"phase": phase}}, Volume)


def claim(size="10Gi", modes=("ReadWriteOnce",), annotations=None, **spec):
    asked = {"requests": {"storage": size}}
    body = {"storageClassName": "local", "accessModes": list(modes), "resources": asked, **spec}
    meta = {"name": "c", "namespace": "ns", "uid": "u", "annotations": annotations or {}}
    return msgspec.convert({"metadata": meta, "spec": body}, VolumeClaim)


def rule(key, *values, operator="In"):
    return {"key": key, "operator": operator, "values": list(values)}


def term(*rules):
    return {"matchExpressions": list(rules)}


REACHED = [
    ("no rule", volume(), {}, True),
    ("a zone of its affinity", volume("1Gi", term(rule(ZONE, "a", "b"))), {ZONE: "b"}, True),
    ("another zone", volume("1Gi", term(rule(ZONE, "a", "b"))), {ZONE: "c"}, False),
    ("one of two terms", volume("1Gi", term(rule(ZONE, "a")), term(rule(HOST, "n1"))), {HOST: "n1"}, True),
    ("both rules of a term", volume("1Gi", term(rule(ZONE, "a"), rule(HOST, "n1"))), {HOST: "n1"}, False),
    ("an empty term", volume("1Gi", {}), {}, False),
    ("a zone label", volume(labels={ZONE: "a"}), {ZONE: "a"}, True),
    ("another zone label", volume(labels={ZONE: "a"}), {ZONE: "b"}, False),
    ("one of several zones of a label", volume(labels={ZONE: "a__b"}), {ZONE: "b"}, True),
    ("an old label, a node with the new one", volume(labels={BETA: "a"}), {ZONE: "a"}, True),
    ("an old label, another zone", volume(labels={BETA: "a"}), {ZONE: "b"}, False),
    ("a zone label, a node without zone or region", volume(labels={ZONE: "a"}), {HOST: "n1"}, True),
    ("a zone label, a node with a region alone", volume(labels={ZONE: "a"}), {REGION: "r"}, False),
    ("zone and region, one of them wrong", volume(labels={ZONE: "a", REGION: "r"}), {ZONE: "a", REGION: "s"}, False),
    ("affinity and a zone label", volume("1Gi", term(rule(HOST, "n1")), labels={ZONE: "a"}), {ZONE: "a"}, False),
]


@pytest.mark.parametrize(("volume", "labels", "reached"), [row[1:] for row in REACHED], ids=[row[0] for row in REACHED])
def test_where_a_volume_is_reached(volume, labels, reached):
    assert accepted(matching.reach_of(volume), labels) is reached


def test_a_volume_may_name_its_node_by_field():
    by_name = volume("1Gi", {"matchFields": [rule("metadata.name", "n1")]})
    nodes = [msgspec.convert({"metadata": {"name": name}}, Node) for name in ("n1", "n2")]
    assert [matching.reaches(node, by_name) for node in nodes] == [True, False]
    assert matching.pin_of(by_name) == "n1"


PINS = [
    ("a host", volume("1Gi", term(rule(HOST, "n1"))), "n1"),
    ("two hosts", volume("1Gi", term(rule(HOST, "n1", "n2"))), ""),
    ("any host but one", volume("1Gi", term(rule(HOST, "n1", operator="NotIn"))), ""),
    ("two terms", volume("1Gi", term(rule(HOST, "n1")), term(rule(HOST, "n2"))), ""),
    ("a zone", volume("1Gi", term(rule(ZONE, "a"))), ""),
    ("no rule", volume(), ""),
]


@pytest.mark.parametrize(("volume", "pin"), [row[1:] for row in PINS], ids=[row[0] for row in PINS])
def test_a_volume_is_of_one_node_where_its_affinity_names_one_alone(volume, pin):
    assert matching.pin_of(volume) == pin


MATCHES = [
    ("alike", volume(), claim(), True),
    ("larger", volume("11Gi"), claim(), True),
    ("smaller by one byte", volume(str(10 * 2**30 - 1)), claim(), False),
    ("in other units", volume("10Gi"), claim("10737418240"), True),
    ("an amount that cannot be read", volume("many"), claim(), False),
    ("another class", volume(storageClassName="other"), claim(), False),
    ("no class, neither of them", volume(storageClassName=""), claim(storageClassName=""), True),
    ("more access modes", volume(accessModes=["ReadWriteOnce", "ReadOnlyMany"]), claim(), True),
    ("fewer access modes", volume(), claim(modes=("ReadWriteOnce", "ReadOnlyMany")), False),
    ("a block device for a file system", volume(volumeMode="Block"), claim(), False),
    ("a block device for one", volume(volumeMode="Block"), claim(volumeMode="Block"), True),
    ("a selector that selects it", volume(labels={"t": "1"}), claim(selector={"matchLabels": {"t": "1"}}), True),
    ("a selector that does not", volume(), claim(selector={"matchLabels": {"t": "1"}}), False),
    ("kept for a claim", volume(ref={"namespace": "ns", "name": "c"}), claim(), False),
    ("released", volume(phase="Released"), claim(), False),
    ("not yet seen by its controller", volume(phase=""), claim(), False),
]


@pytest.mark.parametrize(("volume", "claim", "may"), [row[1:] for row in MATCHES], ids=[row[0] for row in MATCHES])
def test_which_volume_a_claim_may_get(volume, claim, may):
    assert matching.may_get(volume, claim.spec) is may


def test_a_volume_that_is_being_deleted_is_given_to_nobody():
    leaving = msgspec.structs.replace(volume().metadata, deletion_timestamp="2026-11-25T12:00:00Z")
    assert not matching.may_get(msgspec.structs.replace(volume(), metadata=leaving), claim().spec)


KEPT = [
    ("by name", {"namespace": "ns", "name": "c"}, True),
    ("by name and uid", {"namespace": "ns", "name": "c", "uid": "u"}, True),
    ("an older claim of the name", {"namespace": "ns", "name": "c", "uid": "before"}, False),
    ("of another namespace", {"namespace": "other", "name": "c"}, False),
    ("for nobody", None, False),
]


@pytest.mark.parametrize(("ref", "kept"), [row[1:] for row in KEPT], ids=[row[0] for row in KEPT])
def test_for_whom_a_volume_is_kept(ref, kept):
    assert matching.is_kept_for(volume(ref=ref), claim()) is kept


def test_a_claim_is_bound_once_its_controller_says_so():
    """A claim that names its volume itself is bound at once by its controller, and is waited for until then."""
    done = {"pv.kubernetes.io/bind-completed": "yes"}
    assert matching.is_bound(claim(volumeName="v", annotations=done))
    assert not matching.is_bound(claim(volumeName="v"))
    assert not matching.is_bound(claim(annotations=done))


def test_the_smallest_volume_wastes_least_and_the_first_of_equals_is_taken():
    many = [volume("20Gi", name="b"), volume("20Gi", name="a"), volume("100Gi", name="c")]
    assert matching.smallest(many).name == "a"
    assert matching.smallest([]) is None


def test_the_volumes_of_many_nodes_are_one_rule():
    """An ask has at most 256 alternatives, and a class of disks may have one on each of 5,000 nodes."""
    disks = [matching.reach_of(volume("1Gi", term(rule(HOST, f"n{i}")))) for i in range(5000)]
    (only,) = matching.any_of(disks)
    assert (len(only), len(only[0].values)) == (1, 5000)
    assert accepted((only,), {HOST: "n4999"})
    assert not accepted((only,), {HOST: "n5000"})


def test_a_node_with_volumes_for_both_claims_is_found_among_many():
    """Of two classes with one volume on each of 400 nodes only the last node has both."""
    amd64 = rule("kubernetes.io/arch", "amd64")
    one = [volume("1Gi", term(rule(HOST, f"n{i}"), amd64)) for i in range(400)]
    other = [volume("1Gi", term(amd64, rule(HOST, f"n{i}"))) for i in range(399, 800)]
    found = all_of(*(matching.any_of(map(matching.reach_of, many)) for many in (one, other)))
    assert terms_text(found) == "kubernetes.io/hostname in (n399), kubernetes.io/arch in (amd64)"


def test_alternatives_that_no_node_satisfies_leave_room_for_those_that_one_does():
    racks = [tuple((LabelRule("rack", "in", (f"r{i}",)), LabelRule("row", "exists")) for i in ten) for ten in TENS]
    assert terms_text(all_of(*racks)) == "rack in (r19), row"
    assert all_of(racks[0][:1], racks[1][:1]) == NOWHERE
    twice = ((LabelRule("rack", "in", ("r1", "r2")), LabelRule("rack", "in", ("r2", "r3"))),)
    assert terms_text(all_of(twice, twice)) == "rack in (r2)"


def test_no_more_alternatives_are_made_than_count():
    most = TERMS_MAX

    class Watched(tuple):
        def __iter__(self):
            for number, one in enumerate(super().__iter__()):
                assert number <= most
                yield one

    disks = Watched(
        matching.reach_of(volume("1Gi", term(rule(ZONE, "a"), rule(HOST, f"n{i}"))))[0] for i in range(5000)
    )
    assert all_of(matching.reach_of(volume("1Gi", term(rule(ZONE, "a")))), disks) == disks[:TERMS_MAX]
    most = len(disks)
    assert len(all_of(disks, disks)) == PAIRS_MAX // len(disks), "each node with itself, of the pairs that are compared"


def test_one_of_several_that_is_anywhere_is_anywhere_and_none_of_none_is_nowhere():
    somewhere = matching.reach_of(volume("1Gi", term(rule(ZONE, "a"))))
    assert matching.any_of([somewhere, ()]) == ()
    assert matching.any_of([]) == NOWHERE


ALLOWED = [
    ("anywhere", None, ""),
    ("one zone", [{"matchLabelExpressions": [{"key": ZONE, "values": ["a"]}]}], f"{ZONE} in (a)"),
    (
        "a zone of one kind of nodes, or another zone",
        [
            {"matchLabelExpressions": [{"key": ZONE, "values": ["a"]}, {"key": "kind", "values": ["fast"]}]},
            {"matchLabelExpressions": [{"key": ZONE, "values": ["b"]}]},
        ],
        f"{ZONE} in (b); or {ZONE} in (a), kind in (fast)",
    ),
    ("a term without rules says nothing", [{"matchLabelExpressions": []}], ""),
]


@pytest.mark.parametrize(("topologies", "text"), [row[1:] for row in ALLOWED], ids=[row[0] for row in ALLOWED])
def test_where_a_class_makes_volumes(topologies, text):
    found = msgspec.convert({"provisioner": "p", "allowedTopologies": topologies}, StorageClass)
    assert terms_text(matching.allowed_by(found)) == text


def room(zone, capacity="100Gi", most=None):
    topology = {"matchLabels": {ZONE: zone}} if zone else {} if zone == "" else None
    body = {"storageClassName": "x", "nodeTopology": topology, "capacity": capacity, "maximumVolumeSize": most}
    return msgspec.convert(body, StorageCapacity)


ROOM = [
    ("enough", [room("a")], f"{ZONE} in (a)"),
    ("exactly", [room("a", "10Gi")], f"{ZONE} in (a)"),
    ("too little", [room("a", "9Gi")], None),
    ("in two zones of three", [room("a"), room("b", "9Gi"), room("c")], f"{ZONE} in (a, c)"),
    ("enough, but not for one volume", [room("a", "100Gi", "9Gi")], None),
    ("the largest volume is said alone", [room("a", None, "10Gi")], f"{ZONE} in (a)"),
    ("nothing is said", [room("a", None)], None),
    ("everywhere", [room("")], ""),
    ("on no node", [room(None)], None),
    ("no word of it", [], None),
]


@pytest.mark.parametrize(("rooms", "text"), [row[1:] for row in ROOM], ids=[row[0] for row in ROOM])
def test_where_a_class_has_room_for_ten_gibibytes(rooms, text):
    found = matching.roomy_of(rooms, 10 * 2**30)
    assert (None if found == NOWHERE else terms_text(found)) == text


DRIVERS = [
    ("of a driver", {"csi": {"driver": "d", "volumeHandle": "h"}}, ("d", "h")),
    ("of a driver, without handle", {"csi": {"driver": "d"}}, ("d", "v")),
    ("of a plugin that a driver has taken over", {"awsElasticBlockStore": {"volumeID": "x"}}, ("ebs.csi.aws.com", "v")),
    ("a disk of its node", {"local": {"path": "/x"}}, ("", "")),
]


@pytest.mark.parametrize(("spec", "driver"), [row[1:] for row in DRIVERS], ids=[row[0] for row in DRIVERS])
def test_whose_limits_count_for_a_volume(spec, driver):
    assert matching.driver_of(volume(**spec)) == driver


@pytest.mark.parametrize(
    ("provisioner", "driver"),
    [("d", "d"), ("kubernetes.io/gce-pd", "pd.csi.storage.gke.io"), ("kubernetes.io/no-provisioner", "")],
)
def test_whose_limits_count_for_what_a_class_makes(provisioner, driver):
    assert matching.driver_of_class(msgspec.convert({"provisioner": provisioner}, StorageClass)) == driver


# Volumes that are there: who chooses which.


def stock(*volumes, provisioner="kubernetes.io/no-provisioner"):
    """Return a stock with these volumes, of a class that waits for the node."""
    view = VolumeView(None, Heard(*[lambda *_: None] * 5))
    body = {"metadata": {"name": "local"}, "provisioner": provisioner, "volumeBindingMode": "WaitForFirstConsumer"}
    view.classes.wrote(versioned(msgspec.convert(body, StorageClass)))
    for one in volumes:
        view.volumes.wrote(versioned(one, len(view.volumes.objects) + 1))
    return Stock(view)


def versioned(one, number=1):
    meta = msgspec.structs.replace(one.metadata, resource_version=str(number))
    return msgspec.structs.replace(one, metadata=meta)


def disk(name, node, size="10Gi", **more):
    return volume(size, term(rule(HOST, node)), name=name, **more)


def node(name):
    return msgspec.convert({"metadata": {"name": name, "labels": {HOST: name}}}, Node)


def named(name, size="10Gi"):
    found = claim(size)
    return msgspec.structs.replace(found, metadata=msgspec.structs.replace(found.metadata, name=name, uid=name))


def chosen(found):
    return {key[1]: one and one.name for key, one in found.items()} if isinstance(found, dict) else found


CHOICES = [
    ("the smallest for the smallest", [("b", "20Gi"), ("a", "5Gi")], {"a": "small", "b": "large"}),
    ("two that both want the larger one", [("b", "20Gi"), ("a", "20Gi")], "no volume is left there for claim b"),
    ("one that is too large", [("a", "200Gi")], "no volume is left there for claim a"),
    ("none", [], {}),
]


@pytest.mark.parametrize(("asked", "got"), [row[1:] for row in CHOICES], ids=[row[0] for row in CHOICES])
def test_which_volumes_of_a_node_the_claims_of_a_pod_get(asked, got):
    there = stock(disk("large", "n1", "100Gi"), disk("small", "n1"), disk("other", "n2", "20Gi"))
    assert chosen(there.choose(node("n1"), [named(name, size) for name, size in asked])) == got


def test_a_volume_that_was_chosen_is_chosen_by_nobody_else():
    there, first, second = stock(disk("only", "n1")), named("a"), named("b")
    there.assume(first.key, there.choose(node("n1"), [first])[first.key])
    assert chosen(there.choose(node("n1"), [second])) == "no volume is left there for claim b"
    assert there.terms(second.spec, second) == NOWHERE
    assert chosen(there.choose(node("n1"), [first])) == {"a": "only"}, "by its own claim again"
    assert accepted(there.terms(first.spec, first), {HOST: "n1"})
    assert there.release(first.key).name == "only"
    assert accepted(there.terms(second.spec, second), {HOST: "n1"})
    assert chosen(there.choose(node("n1"), [second])) == {"b": "only"}


def test_a_volume_that_was_chosen_counts_for_its_claim_until_that_is_gone():
    there, asked = stock(disk("one", "n1"), disk("two", "n1"), disk("far", "n2")), named("a")
    name = there.amount_of(asked, asked.spec)
    assert (name, there.offered(node("n1")), there.offered(node("n2"))) == ("volumes:local:10Gi", {name: 2}, {name: 1})
    there.take(asked.key)
    there.assume(asked.key, there.choose(node("n1"), [asked])[asked.key])
    assert (there.amount_of(asked, asked.spec), there.offered(node("n1"))) == (name, {name: 2})


def test_a_claim_with_a_volume_that_was_not_counted_takes_none_of_those_that_are():
    there = stock(disk("kept", "n1", ref={"namespace": "ns", "name": "a"}), disk("free", "n1"))
    other, asked = named("b"), named("a")
    name = there.amount_of(other, other.spec)
    assert there.amount_of(asked, asked.spec) == ""
    assert there.offered(node("n1")) == {name: 1}
    bound = msgspec.structs.replace(asked.spec, volume_name="kept")
    assert there.amount_of(msgspec.structs.replace(asked, spec=bound), bound) == ""


def test_what_a_class_makes_is_no_amount():
    there, asked = stock(provisioner="disks.example.com"), named("a")
    assert there.amount_of(asked, asked.spec) == ""
    assert chosen(there.choose(node("n1"), [asked])) == {"a": None}
    picky = msgspec.structs.replace(asked.spec, selector=LabelSelector({"t": "1"}))
    assert there.terms(picky) == NOWHERE, "a class makes nothing for a claim that selects volumes"


def test_many_sizes_are_counted_as_any_size():
    there = stock(disk("one", "n1", "100Gi"))
    names = {there.amount_of(one, one.spec) for one in (named("a", f"{i}Gi") for i in range(1, 200))}
    assert len(names) == 65
    assert there.offered(node("n1")) == dict.fromkeys(names, 1)


# A claim that one pod alone may use.


def alone():
    """Return volumes with a bound claim that one pod alone may use."""
    volumes = Volumes(None, {("", "n1"): node("n1")}, lambda _: (), lambda _: (), lambda: None)
    one = claim(modes=("ReadWriteOncePod",), annotations={matching.BOUND_ANNOTATION: "yes"}, volumeName="v")
    volumes.view.claims.wrote(versioned(one))
    volumes.view.volumes.wrote(versioned(volume(phase="Bound", ref={"namespace": "ns", "name": "c", "uid": "u"})))
    return volumes


def user(number, *, made="2026-01-01T00:00:00Z", leaving=False, node=""):
    """Return a pod that names the claim."""
    meta = {"name": f"p{number:05}", "namespace": "ns", "uid": f"u{number}", "creationTimestamp": made}
    meta |= {"deletionTimestamp": made} if leaving else {}
    spec = {"volumes": [{"name": "c", "persistentVolumeClaim": {"claimName": "c"}}], "nodeName": node}
    return msgspec.convert({"metadata": meta, "spec": spec}, Pod)


def refused_for(volumes, pod):
    """Return the pod that keeps a pod from its claim; '' if none does."""
    refused = volumes.refusal(pod)
    return refused.text.rpartition(" by ")[2] if refused is not None else ""


def test_the_oldest_pod_that_stays_comes_first_to_a_claim_for_one():
    volumes = alone()
    for number in (2, 0, 1):
        volumes.pod_changed(user(number))
    assert [refused_for(volumes, user(i)) for i in range(3)] == ["", "p00000", "p00000"]
    volumes.pod_changed(user(0, leaving=True))
    assert [refused_for(volumes, user(i)) for i in range(1, 3)] == ["", "p00001"]
    volumes.pod_changed(user(0))  # another one of its name, of the same second
    assert refused_for(volumes, user(2)) == "p00000"
    volumes.pod_gone(user(0))
    volumes.pod_changed(user(1, made="2026-01-02T00:00:00Z"))
    assert refused_for(volumes, user(2)) == ""
    volumes.pod_changed(user(1, made="2026-01-02T00:00:00Z", node="n1"))
    assert refused_for(volumes, user(2)) == "p00001"
    volumes.pod_gone(user(1, node="n1"))
    assert refused_for(volumes, user(2)) == ""
    volumes.pod_changed(user(0))
    assert refused_for(volumes, user(2)) == "p00000"


def test_a_pod_that_starts_holds_a_claim_for_one_until_it_gives_up():
    async def work():
        volumes, young = alone(), user(1)
        volumes.pod_changed(young)
        assert await volumes.prepare(young, "n1", lambda: True) == ""
        volumes.pod_changed(user(0))
        assert refused_for(volumes, user(0)) == "p00001"
        volumes.pod_changed(user(1))
        assert [refused_for(volumes, user(i)) for i in range(3)] == ["p00001", "", "p00001"]
        await volumes.release(young, "n1")
        assert [refused_for(volumes, user(i)) for i in range(3)] == ["", "p00000", "p00000"]

    asyncio.run(work())


def calls(action):
    """Return how many functions an action calls."""
    seen = []

    def note(_frame, event, _arg):
        if event in ("call", "c_call"):
            seen.append(event)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        action()
    finally:
        sys.setprofile(before)
    return len(seen)


def work_of_one_of(number):
    """Return the calls that a pod costs where so many wait for a claim for one: it comes, is judged, and one leaves."""
    volumes, pods = alone(), [user(i) for i in range(number)]
    last = user(number)

    def play():
        volumes.pod_changed(last)
        assert refused_for(volumes, last)
        volumes.pod_gone(pods[0])
        assert refused_for(volumes, last)

    for one in pods:
        volumes.pod_changed(one)
    assert refused_for(volumes, pods[-1])
    return calls(play)


def test_a_pod_costs_the_same_however_many_wait_for_a_claim_for_one():
    assert work_of_one_of(4000) <= work_of_one_of(400) + 10


def test_pods_that_come_and_go_leave_nothing_behind_at_a_claim_for_one():
    volumes = alone()
    volumes.pod_changed(user(0))
    for number in range(1, 1000):
        volumes.pod_changed(user(number))
        assert refused_for(volumes, user(number)) == "p00000"
        volumes.pod_gone(user(number))
    (order,) = volumes.users._order.values()
    assert len(order) < 200


def shared(name, *zones, size="10Gi", **more):
    return volume(size, *([term(rule(ZONE, *zones))] if zones else []), name=name, **more)


def in_zone(zone, name="n1", **labels):
    return msgspec.convert({"metadata": {"name": name, "labels": {HOST: name, ZONE: zone, **labels}}}, Node)


def test_a_volume_that_several_nodes_reach_is_offered_by_each_of_them():
    there = stock(
        shared("everywhere"), shared("a", "a", size="20Gi"), shared("ab", "a", "b"), disk("own", "n1"),
        shared("had", ref={"namespace": "ns", "name": "x"}), disk("other", "n2"),
    )  # fmt: skip
    few, many = (there.amount_of(one, one.spec) for one in (named("a", "15Gi"), named("b")))
    assert there.offered(in_zone("a")) == {few: 1, many: 4}
    assert there.offered(in_zone("b", "n2")) == {many: 3}
    assert there.offered(in_zone("c", "n3")) == {many: 1}
    there.take(("ns", "x"))
    assert there.offered(in_zone("c", "n3")) == {many: 2}, "a counted claim has one of them"


def test_where_volumes_are_that_several_nodes_reach_is_judged_once_for_nodes_with_the_same_labels(monkeypatch):
    """1,000 volumes of four zones were each judged for each of 5,000 nodes: 13 s of the engine's loop."""
    there, asked, judged = stock(*(shared(f"v{i}", "abcd"[i % 4]) for i in range(100))), named("a"), []
    name = there.amount_of(asked, asked.spec)

    def counted(terms, labels):
        judged.append(terms)
        return accepted(terms, labels)

    for module in (stocking, viewing):
        monkeypatch.setattr(module, "accepted", counted)
    for i in range(200):
        assert there.offered(in_zone("abcd"[i % 4], f"n{i}", rack=f"r{i}")) == {name: 25}
    assert len(judged) == 16, "each of four reaches for each of four zones"


def test_nodes_are_described_anew_only_where_they_have_something_else_of_what_several_reach():
    first = shared("v1", "a")
    there, asked = stock(first, shared("v2", "b")), named("a")
    there.amount_of(asked, asked.spec)
    assert there.shared_changed("local")
    there.take(asked.key)
    ref = msgspec.structs.replace(first.spec, claim_ref=volume(ref={"namespace": "ns", "name": "a"}).spec.claim_ref)
    there._view.volumes.wrote(versioned(msgspec.structs.replace(first, spec=ref), 7))
    assert not there.shared_changed("local"), "what a counted claim has counts as before"
    there.take(asked.key, takes=False)
    assert there.shared_changed("local")
    assert not there.shared_changed("local")


def test_many_nodes_are_seldom_described_anew_for_what_all_of_them_reach():
    """Each of 5,000 nodes would say hello again for each of 1,000 volumes that come one after the other."""
    there, asked = stock(shared("first")), named("a")
    name = there.amount_of(asked, asked.spec)
    anew = []
    for number in range(2, 1001):
        there._view.volumes.wrote(versioned(shared(f"v{number}"), number))
        if there.shared_changed("local"):
            anew.append(number)
        assert number <= there.offered(node("n1"))[name] <= number + (number >> 4)
    assert anew[:30] == list(range(2, 32))
    assert len(anew) == 111
