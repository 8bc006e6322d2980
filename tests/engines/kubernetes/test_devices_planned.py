"""Kinds of claims that are counted for templates: those that were asked about last, so many of a namespace."""

import msgspec

from penstock.core.model.ids import NodeName
from penstock.engines.kubernetes.devices.claimed import Claimed, signature_of
from penstock.engines.kubernetes.devices.counting import WORK_A_TURN, Counting
from penstock.engines.kubernetes.devices.extended import Extended
from penstock.engines.kubernetes.devices.planned import OF_NAMESPACE_MAX, STEPS_A_PIECE, STEPS_A_WORK, Planned
from penstock.engines.kubernetes.devices.tidying import Starting
from penstock.engines.kubernetes.objects.devices import ClaimSpec, DeviceClass, ResourceClaimTemplate, ResourceSlice
from penstock.engines.kubernetes.objects.nodes import Node
from penstock.engines.kubernetes.objects.pods import Pod
from tests.engines.kubernetes.devices_made import claim_of, class_of, dev, req, slice_of


def test_of_templates_the_kinds_asked_about_last_are_counted():
    claimed = Claimed(lambda node: {}, lambda namespace, name: None)
    planned = Planned(claimed)

    def note(number):
        template = {"metadata": {"name": f"t{number}"}, "spec": {"spec": claim_of(req("r", 1, f"{number} > 0"))}}
        claimed.templates[f"a/t{number}"] = msgspec.convert(template, ResourceClaimTemplate)
        uses = [{"name": "gpu", "resourceClaimTemplateName": f"t{number}"}]
        meta = {"name": f"job{number}#0", "namespace": "a", "uid": "u#0"}
        return planned.note(msgspec.convert({"metadata": meta, "spec": {"resourceClaims": uses}}, Pod))[0]

    kinds = [note(number) for number in range(OF_NAMESPACE_MAX)]
    note(0)
    note(OF_NAMESPACE_MAX)
    assert len(planned.signatures) == OF_NAMESPACE_MAX
    assert kinds[0].keys() <= planned.signatures.keys()
    assert not kinds[1].keys() <= planned.signatures.keys()


TEN = "[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]"


def with_kinds(devices, *expressions):
    """Return what counts, with a kind of claims of each of these expressions."""
    claimed = Claimed(lambda node: {}, lambda namespace, name: None)
    claimed.inventory.put(msgspec.convert(slice_of(*(dev(f"d{i}") for i in range(devices))), ResourceSlice))
    claimed.classes["gpu"] = msgspec.convert(class_of(), DeviceClass)
    planned = Planned(claimed)
    for one in expressions:
        kind = signature_of((msgspec.convert(claim_of(req("r", 1, one)), ClaimSpec),))
        planned.signatures[kind.name] = kind
    return claimed, planned


def test_expressions_are_work_once_by_their_steps():
    _, planned = with_kinds(10, f"{TEN}.all(x, {TEN}.all(y, true))")
    (kind,) = planned.signatures.values()
    assert planned.free("n1") == {kind.name: 10}
    assert 20 < planned.work < 100
    before = planned.work
    planned.free("n1")
    assert planned.work == before + 1


def test_a_node_with_costly_kinds_is_counted_in_pieces_with_pauses_as_long():
    costly = [f"{TEN}.all(x, {TEN}.all(y, x + y + {number} > 0))" for number in range(40)]
    claimed, planned = with_kinds(50, *costly)
    n1, pieces = NodeName("n1"), []
    node = msgspec.convert({"metadata": {"name": "n1"}}, Node)
    counting = Counting(claimed, planned, Extended(claimed), Starting(), {("", "n1"): node}, lambda name: ())
    counting.node(n1)
    while counting.due:
        before = planned.work
        told = counting.turn()
        pieces.append(planned.work - before)
    assert told == (n1,)
    assert counting.offered(node) == dict.fromkeys(sorted(planned.signatures), 50)
    most = WORK_A_TURN + STEPS_A_PIECE // STEPS_A_WORK + 10
    assert max(pieces) <= most, "no turn does much more than it may"
    assert sum(pieces) / len(pieces) <= WORK_A_TURN + 1, "and one that did is made up for"
