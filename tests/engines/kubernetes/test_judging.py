"""Whether what a gang asks for is still what was planned."""

from typing import Any, cast

import msgspec
import pytest

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
