"""Rules between fields: what they refuse, with which text, and what they let through."""

import re

import pytest

from tests.engines.kubernetes.test_crds import KINDS, QUOTA, TEMPLATE, nodes, schema_of


class Text(str):
    """A string with the methods of CEL that the rules use."""

    def matches(self, pattern):
        return re.search(pattern, self) is not None


class Node:
    """An object whose fields are attributes, as CEL has them."""

    def __init__(self, body):
        self.body = body

    def __getattr__(self, name):
        if name not in self.body:
            raise AttributeError(name)
        value = self.body[name]
        return Node(value) if isinstance(value, dict) else Text(value) if isinstance(value, str) else value


def has(node, path):
    for name in path.split("."):
        if name not in node.body:
            return False
        node = getattr(node, name)
    return True


def evaluated(cel, node):
    """Evaluate a rule as Python, which reads these few forms alike."""
    python = re.sub(r"has\(self\.([\w.]+)\)", r"has(self, '\1')", cel)
    for theirs, ours in (("||", " or "), ("&&", " and "), ("!has", "not has")):
        python = python.replace(theirs, ours)
    python = re.sub(r"\.format\(\[(.*)\]\)", r" % (\1)", python)
    return eval(python, {"self": Node(node), "has": has, "size": len})


def refusals(schema, body, path=""):
    """Yield path and text of each rule that an object breaks."""
    for rule in schema.get("x-kubernetes-validations", ()):
        if not evaluated(rule["rule"], body):
            yield path + rule.get("fieldPath", ""), evaluated(rule["messageExpression"], body)
    for name, one in schema.get("properties", {}).items():
        if isinstance(body, dict) and name in body:
            yield from refusals(one, body[name], f"{path}.{name}")
    for one in body if isinstance(body, list) else ():
        yield from refusals(schema["items"], one, f"{path}[]")


def job(**spec):
    return {"spec": {"template": TEMPLATE, **spec}}


def pod(**fields):
    return job(template={"spec": {**TEMPLATE["spec"], **fields}})


NO_CONTAINERS = (".spec.template", "spec.template.spec.containers: none, expected at least one container")
NAMES = "at most 63 letters, digits, '-', '_' and '.'"
BROKEN = [
    ("ElasticJob", job(scaling={"minReplicas": 4, "maxReplicas": 2}),
     ".spec.scaling.maxReplicas", "2, expected at least minReplicas, 4"),
    ("ElasticJob", {"spec": {}}, *NO_CONTAINERS),
    ("ElasticJob", job(template={}), *NO_CONTAINERS),
    ("ElasticJob", job(template={"spec": {"containers": []}}), *NO_CONTAINERS),
    ("ElasticJob", pod(schedulerName="volcano"), ".spec.template.spec.schedulerName",
     "volcano, expected penstock or none: all replicas are placed together, by Penstock"),
    ("ElasticJob", pod(restartPolicy="OnFailure"), ".spec.template.spec.restartPolicy",
     "OnFailure, expected Never or none: a rank that restarts alone leaves the others hanging"),
    ("ElasticJob", pod(nodeName="n1"), ".spec.template.spec.nodeName",
     "n1, expected none: a pod that names its node goes round the quota of its queue"),
    ("ElasticJob", job(pool="-a"), ".spec.pool", f"-a, expected the name of a pool: {NAMES}"),
    ("ElasticJob", job(queue="a" * 64), ".spec.queue", f"{'a' * 64}, expected the name of a queue: {NAMES}"),
    ("Queue", {"metadata": {"name": "q"}, "spec": {"parent": "q"}}, ".spec.parent",
     "q, expected another queue, or none: a queue cannot be above itself"),
    ("Queue", {"metadata": {"name": "q"}, "spec": {"parent": "a/b"}}, ".spec.parent",
     f"a/b, expected the name of a queue: {NAMES}"),
    ("ComputePool", {"spec": {"quotas": [{**QUOTA, "guaranteed": 2}]}}, ".spec.quotas[].guaranteed",
     "2, expected at most limit, 1"),
    ("ComputePool", {"spec": {"capacity": {"total": 2, "reserved": 3}}}, ".spec.capacity.reserved",
     "3, expected at most total, 2"),
]  # fmt: skip
KEPT = [
    ("ElasticJob", job(scaling={"minReplicas": 2, "maxReplicas": 2}, pool="A_b.c-1", queue="a" * 63)),
    ("ElasticJob", pod(schedulerName="penstock", restartPolicy="Never", nodeName="")),
    ("ElasticJob", job(scaling={}, pool="", queue="")),
    ("Queue", {"metadata": {"name": "q"}, "spec": {"parent": "p"}}),
    ("Queue", {"metadata": {"name": "q"}, "spec": {}}),
    ("ComputePool", {"spec": {"capacity": {"total": 0, "reserved": 3}}}),
    ("ComputePool", {"spec": {"capacity": {"total": 3, "reserved": 3}, "quotas": [{**QUOTA, "guaranteed": 1}]}}),
    ("ComputePool", {"spec": {"capacity": {}}}),
]


@pytest.mark.parametrize(("kind", "body", "field", "text"), BROKEN)
def test_a_rule_names_field_value_and_what_was_expected(kind, body, field, text):
    assert list(refusals(schema_of(kind), body)) == [(field, text)]


@pytest.mark.parametrize(("kind", "body"), KEPT)
def test_rules_let_through_what_is_right(kind, body):
    assert not list(refusals(schema_of(kind), body))


def test_every_rule_is_broken_once():
    fields = {(kind, field) for kind, _, field, _ in BROKEN}
    for kind in KINDS:
        for path, node in nodes(schema_of(kind)):
            for rule in node.get("x-kubernetes-validations", ()):
                assert (kind, path + rule["fieldPath"]) in fields
