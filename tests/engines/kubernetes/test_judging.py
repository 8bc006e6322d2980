"""Whether what a gang asks for is still what was planned."""

from typing import Any, ClassVar, cast

import msgspec
import pytest

from penstock.core.model.cluster import NodeSpec
from penstock.core.model.ids import NodeName
from penstock.core.model.resources import ReplicaAsk, Resources
from penstock.core.model.selectors import LabelRule
from penstock.engines.kubernetes.asks import ask_of
from penstock.engines.kubernetes.claims import AllClaims
from penstock.engines.kubernetes.gangs.gang import Facts, Gang, Slot
from penstock.engines.kubernetes.judging import Judging
from penstock.engines.kubernetes.objects.pods import Pod
from penstock.engines.kubernetes.selectors import Selectors


def pod(cpus: str, name: str = "p") -> Pod:
    box = {"name": "main", "resources": {"limits": {"cpu": cpus}}}
    return msgspec.convert({"metadata": {"name": name}, "spec": {"containers": [box]}}, Pod)


@pytest.mark.parametrize(("cpus", "edited"), [("1", False), ("2", True), ("many", True)])
def test_a_gang_is_edited_where_it_asks_for_something_else_or_for_what_cannot_be_read(cpus: str, edited: bool) -> None:
    judging = Judging({}, cast(Any, None), Selectors(lambda _: {}), cast(Any, None), AllClaims())
    gang = Gang("ns", "team", Facts(1), {"p": pod(cpus)}, slots=[Slot(ask_of(pod("1")), "p")])
    assert judging.edited(gang) is edited


class Standing:
    """One node, in zone a."""

    specs: ClassVar = {NodeName("n1"): NodeSpec(NodeName("n1"), Resources(1000), labels=(("zone", "a"),))}

    def __init__(self) -> None:
        self.asked: set[str] = set()

    def ask_about(self, keys: set[str]) -> None:
        self.asked |= keys


def ask(cpus: int, *zones: str) -> ReplicaAsk:
    return ReplicaAsk(Resources(cpus), label_terms=((LabelRule("zone", "in", zones),),) if zones else ())


@pytest.mark.parametrize(
    ("now", "changed"),
    [(ask(1, "a"), False), (ask(1, "a", "b"), False), (ask(1, "b"), True), (ask(2, "a"), True), (ask(1), False)],
)
def test_a_pod_keeps_its_place_where_its_node_still_does_for_it(now: ReplicaAsk, changed: bool) -> None:
    standing = Standing()
    judging = Judging({}, cast(Any, standing), Selectors(lambda _: {}), cast(Any, None), AllClaims())
    assert judging.changed(NodeName("n1"), now, ask(1)) is changed
    assert judging.changed(NodeName("gone"), now, ask(1)) is (now != ask(1))
    assert standing.asked == ({"zone"} if now != ask(1) and now.label_terms else set())
