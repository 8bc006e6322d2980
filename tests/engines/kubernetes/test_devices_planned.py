"""Kinds of claims that are counted for templates: those that were asked about last, so many of a namespace."""

import msgspec

from penstock.engines.kubernetes.devices.claimed import Claimed, signature_of
from penstock.engines.kubernetes.devices.planned import OF_NAMESPACE_MAX, Planned
from penstock.engines.kubernetes.objects.devices import ClaimSpec, DeviceClass, ResourceClaimTemplate, ResourceSlice
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


def test_expressions_are_work_once_by_their_steps():
    claimed = Claimed(lambda node: {}, lambda namespace, name: None)
    claimed.inventory.put(msgspec.convert(slice_of(*(dev(f"d{i}") for i in range(10))), ResourceSlice))
    claimed.classes["gpu"] = msgspec.convert(class_of(), DeviceClass)
    planned, ten = Planned(claimed), "[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]"
    spec = claim_of(req("r", 1, f"{ten}.all(x, {ten}.all(y, true))"))
    kind = signature_of((msgspec.convert(spec, ClaimSpec),))
    planned.signatures[kind.name] = kind
    assert planned.free("n1") == {kind.name: 10}
    assert 20 < planned.work < 100
    before = planned.work
    planned.free("n1")
    assert planned.work == before + 1
