"""Kinds of claims that are counted for templates: those that were asked about last, so many of a namespace."""

import msgspec

from penstock.engines.kubernetes.devices.claimed import Claimed
from penstock.engines.kubernetes.devices.planned import OF_NAMESPACE_MAX, Planned
from penstock.engines.kubernetes.objects.devices import ResourceClaimTemplate
from penstock.engines.kubernetes.objects.pods import Pod
from tests.engines.kubernetes.devices_made import claim_of, req


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
