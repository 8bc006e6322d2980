"""Third-party order policies: found lazily, checked when loaded, and never able to give a key that is not exact."""

import importlib.metadata
import sys
from types import SimpleNamespace

import pytest

from penstock import extensions
from penstock.core.model.cluster import Settings
from penstock.core.model.jobs import GangAsk, Job, JobSpec
from penstock.core.model.resources import ReplicaAsk, Resources
from penstock.core.order.extension import BadPolicy, checked_key, extension_of, registry

JOB = Job(7, JobSpec(("true",), GangAsk(1, ReplicaAsk(Resources())), time_limit_ms=50), "ann", 0, 0, 0)


class Shortest:
    def __init__(self, name="shortest", key=None):
        self.name, self.key = name, key

    def order_key(self, job, now_ms, settings):
        return self.key if self.key is not None else (job.spec.time_limit_ms, now_ms)


def test_a_registry_is_sorted_and_read_only():
    found = registry([Shortest("b"), Shortest("a")])
    assert list(found) == ["a", "b"]
    with pytest.raises(TypeError):
        found["c"] = Shortest("c")


@pytest.mark.parametrize(
    ("policies", "message"),
    [
        ([object()], "object is no order policy"),
        ([SimpleNamespace(name="x", order_key=5)], "SimpleNamespace is no order policy"),
        ([SimpleNamespace(name="x")], "SimpleNamespace is no order policy"),
        ([Shortest("")], "the name of a policy is ''"),
        ([Shortest("a b")], "the name of a policy is 'a b'"),
        ([Shortest("x" * 64)], "the name of a policy is"),
        ([Shortest(5)], "the name of a policy is 5"),
        ([Shortest(), Shortest()], "two policies are named 'shortest'"),
    ],
)
def test_what_is_no_policy_is_refused(policies, message):
    with pytest.raises(BadPolicy) as found:
        registry(policies)
    assert found.value.message.startswith(message)
    assert found.value.code == "bad_policy"


def test_a_queue_names_a_policy_with_its_prefix():
    known = registry([Shortest()])
    assert extension_of(known, "ext:shortest") is known["shortest"]
    assert extension_of(known, "fifo") is None


def test_a_policy_that_is_no_longer_installed_is_named():
    with pytest.raises(BadPolicy, match="'gone' is not installed") as found:
        extension_of(registry([Shortest()]), "ext:gone")
    assert found.value.hint == "install its package again; installed: shortest"
    with pytest.raises(BadPolicy) as found:
        extension_of({}, "ext:gone")
    assert found.value.hint.endswith("installed: none")


@pytest.mark.parametrize("key", [(), (0,), (-5, 2**80), tuple(range(16))])
def test_a_key_of_whole_numbers_is_passed_on(key):
    assert checked_key(Shortest(key=key), JOB, 3, Settings()) == key


def test_a_policy_sees_job_and_time():
    assert checked_key(Shortest(), JOB, 3, Settings()) == (50, 3)


@pytest.mark.parametrize("key", [5, [1], (1.0,), (True,), ("1",), (1, None), tuple(range(17))])
def test_any_other_key_is_refused(key):
    with pytest.raises(BadPolicy, match="policy 'shortest' gave job 7 the key"):
        checked_key(Shortest(key=key), JOB, 3, Settings())


@pytest.fixture
def offered(monkeypatch, tmp_path):
    """Return a function that offers entry points, as installed packages do."""
    monkeypatch.syspath_prepend(tmp_path)

    def offer(text="", **points):
        (tmp_path / "offered_policies.py").write_text(text)
        sys.modules.pop("offered_policies", None)
        found = [importlib.metadata.EntryPoint(n, v, extensions.GROUP) for n, v in points.items()]
        monkeypatch.setattr(extensions, "entry_points", lambda group: found if group == extensions.GROUP else [])
        return extensions.installed_policies()

    yield offer
    sys.modules.pop("offered_policies", None)


SOURCE = """
class Shortest:
    name = "shortest"
    def order_key(self, job, now_ms, settings):
        return (job.spec.time_limit_ms,)
instance = Shortest()
broken = 5
"""


def test_names_are_known_before_anything_is_imported(offered):
    found = offered(SOURCE, shortest="offered_policies:Shortest", absent="no_such_module:x")
    assert list(found) == ["absent", "shortest"]
    assert len(found) == 2
    assert "shortest" in found
    assert "fifo" not in found
    assert "offered_policies" not in sys.modules


@pytest.mark.parametrize("value", ["offered_policies:Shortest", "offered_policies:instance"])
def test_a_policy_is_loaded_once_when_it_is_looked_up(offered, value):
    found = offered(SOURCE, shortest=value, absent="no_such_module:x")
    assert found["shortest"].order_key(JOB, 0, Settings()) == (50,)
    assert found["shortest"] is found["shortest"]
    assert list(found.only(["shortest", "shortest"])) == ["shortest"]


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("shortest", "no_such_module:x", "cannot be loaded: No module named 'no_such_module'"),
        ("shortest", "offered_policies:gone", "cannot be loaded: module 'offered_policies' has no attribute 'gone'"),
        ("shortest", "offered_policies:broken", "int is no order policy"),
        ("other", "offered_policies:Shortest", "calls itself 'shortest'"),
    ],
)
def test_a_policy_that_cannot_be_loaded_is_named(offered, name, value, message):
    found = offered(SOURCE, **{name: value})
    with pytest.raises(BadPolicy, match=message):
        found[name]


def test_a_name_that_nobody_offers_is_a_key_error(offered):
    with pytest.raises(KeyError):
        offered()["shortest"]


def test_two_packages_may_not_offer_one_name(monkeypatch):
    points = [importlib.metadata.EntryPoint("x", f"module{i}:policy", extensions.GROUP) for i in (1, 2)]
    monkeypatch.setattr(extensions, "entry_points", lambda group: points)
    with pytest.raises(BadPolicy, match="two packages offer a policy 'x': module1:policy and module2:policy"):
        extensions.installed_policies()
    monkeypatch.setattr(extensions, "entry_points", lambda group: points[:1] * 2)
    assert list(extensions.installed_policies()) == ["x"]


def test_what_is_really_installed_can_be_listed():
    assert all(isinstance(name, str) for name in extensions.installed_policies())
