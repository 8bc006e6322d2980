"""The CustomResourceDefinitions of `penstock.dev`, generated from the types of `objects/penstock.py`.

Here stands what the types cannot say: rules between fields in CEL, list types, columns, subresources. A rule names
field, value and what was expected; the API server refuses an object with that text, so no operator has to.
"""

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from penstock.engines.kubernetes.asks import SCHEDULER
from penstock.engines.kubernetes.install.meta import NAME, Object, meta
from penstock.engines.kubernetes.install.schemas import Schema, struct_schema
from penstock.engines.kubernetes.objects.penstock import GROUP, VERSION, ComputePool, ElasticJob, Queue

CONTAINERS_MAX = 256
NAME_MAX = 63
"""Characters of the name of a pool or a queue: it stands in labels."""
_UNSET = "!has(self.{}) || !has(self.{})"
"""Rules are tried on defaults, too, before the defaults within these apply."""
_NAME = "^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$"


class Rule(NamedTuple):
    """A rule between fields of one node of a schema.

    The API server puts the path of the field before the text. It estimates what an expression may cost: texts need a
    maxLength, and numbers are written by `format`, which is in Kubernetes 1.30 or newer; the result of `string` counts
    as a text without bound, and the definition is refused.
    """

    holds: str
    """Whether the node, `self`, is right; in CEL, as the next one."""
    says: str
    """The text of a refusal, with the value."""
    message: str
    """The same without the value, for where `says` cannot be evaluated."""
    field: str
    """Field of the node that the refusal is about."""

    def body(self) -> Schema:
        return {"rule": self.holds, "message": self.message, "messageExpression": self.says, "fieldPath": self.field}


class Column(NamedTuple):
    """A column of `kubectl get`."""

    name: str
    type: str
    path: str
    wide: bool = False
    """Whether it is shown by `-o wide` only."""

    def body(self) -> Schema:
        wide = {"priority": 1} if self.wide else {}  # a 0 is dropped by the API server: each apply would change it
        return {"name": self.name, "type": self.type, "jsonPath": self.path, **wide}


AGE = Column("Age", "date", ".metadata.creationTimestamp")
ELASTIC_JOB_COLUMNS = (
    Column("Phase", "string", ".status.phase"),
    Column("Replicas", "integer", ".status.replicas"),
    Column("Min", "integer", ".spec.scaling.minReplicas"),
    Column("Max", "integer", ".spec.scaling.maxReplicas"),
    Column("Queue", "string", ".spec.queue"),
    Column("Attempt", "integer", ".status.attempt"),
    AGE,
    Column("Why", "string", '.status.conditions[?(@.type=="Placed")].message', wide=True),
)
QUEUE_COLUMNS = (
    Column("Parent", "string", ".spec.parent"),
    Column("Weight", "integer", ".spec.weight"),
    Column("Waiting", "integer", ".status.waiting"),
    Column("Running", "integer", ".status.running"),
    AGE,
)
COMPUTE_POOL_COLUMNS = (
    Column("Type", "string", ".spec.poolType"),
    Column("Total", "integer", ".status.totalCapacity"),
    Column("Allocated", "integer", ".status.allocatedCapacity"),
    Column("Available", "integer", ".status.availableCapacity"),
    Column("Phase", "string", ".status.phase"),
    AGE,
)
SCALE = {
    "specReplicasPath": ".spec.scaling.maxReplicas",
    "statusReplicasPath": ".status.replicas",
    "labelSelectorPath": ".status.selector",
}


def crds() -> list[Object]:
    """Return the definitions of ElasticJob, Queue and ComputePool, each a new value."""
    return [
        _definition(_elastic_job(), ElasticJob, "ej", ELASTIC_JOB_COLUMNS, scope="Namespaced", scale=SCALE),
        _definition(_queue(), Queue, "pq", QUEUE_COLUMNS, scope="Cluster"),
        _definition(_compute_pool(), ComputePool, "cp", COMPUTE_POOL_COLUMNS, scope="Cluster"),
    ]


def _definition(
    schema: Schema, cls: type[msgspec.Struct], short: str, columns: Iterable[Column], *, scope: str, **more: Schema
) -> Object:
    kind = cls.__name__
    plural = f"{kind.lower()}s"
    names: Object = {"kind": kind, "listKind": f"{kind}List", "plural": plural, "singular": kind.lower()}
    version: Object = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "additionalPrinterColumns": [column.body() for column in columns],
        "subresources": {"status": {}, **more},
        "schema": {"openAPIV3Schema": schema},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": meta(f"{plural}.{GROUP}"),
        "spec": {
            "group": GROUP,
            "scope": scope,
            "names": {**names, "shortNames": [short], "categories": [NAME]},
            "versions": [version],
        },
    }


def _elastic_job() -> Schema:
    found = _kind(ElasticJob, "What is asked for.", "What Penstock says of it.")
    spec = found["properties"]["spec"]
    del spec["default"]  # there is no job without a template
    found["required"] = ["spec"]
    fields = spec["properties"]
    fields["template"].update(_template())
    fields["scaling"]["description"] = "How many replicas it runs with."
    _check(
        fields["scaling"],
        Rule(
            f"{_UNSET.format('minReplicas', 'maxReplicas')} || self.minReplicas <= self.maxReplicas",
            "'%d, expected at least minReplicas, %d'.format([self.maxReplicas, self.minReplicas])",
            "expected at least minReplicas",
            ".maxReplicas",
        ),
    )
    containers = "has(self.template) && has(self.template.spec) && has(self.template.spec.containers)"
    _check(
        spec,
        Rule(
            f"{containers} && size(self.template.spec.containers) > 0",
            "'spec.template.spec.containers: none, expected at least one container'",
            "spec.template.spec.containers: none, expected at least one container",
            ".template",
        ),
        _name_rule("pool", "a pool"),
        _name_rule("queue", "a queue"),
    )
    return found


def _template() -> Schema:
    """Return what is checked of a template; all of the rest is kept, and checked when pods are made."""
    container = {
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": True,
        "required": ["name"],
        "properties": {"name": {"type": "string", "minLength": 1, "maxLength": 63}},
    }
    word = {"type": "string", "maxLength": 253}
    spec: Schema = {
        "type": "object",
        "description": "As in a pod.",
        "x-kubernetes-preserve-unknown-fields": True,
        "properties": {
            "schedulerName": {**word, "description": f"Absent, or {SCHEDULER}."},
            "restartPolicy": {**word, "description": "Absent, or Never."},
            "nodeName": {**word, "description": "Absent: nodes are chosen by Penstock."},
            "containers": {
                "type": "array",
                "description": "At least one.",
                "maxItems": CONTAINERS_MAX,
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name"],
                "items": container,
            },
        },
    }
    _check(
        spec,
        _word_rule("schedulerName", SCHEDULER, "all replicas are placed together, by Penstock"),
        _word_rule("restartPolicy", "Never", "a rank that restarts alone leaves the others hanging"),
        _word_rule("nodeName", "", "a pod that names its node goes round the quota of its queue"),
    )
    return {"properties": {"spec": spec}}


def _queue() -> Schema:
    found = _kind(Queue, "Its place in the tree, and its part.", "What is in it.")
    _bound_name(found)
    _check(
        found,
        Rule(
            "!has(self.spec.parent) || self.spec.parent != self.metadata.name",
            "self.spec.parent + ', expected another queue, or none: a queue cannot be above itself'",
            "expected another queue, or none: a queue cannot be above itself",
            ".spec.parent",
        ),
    )
    _check(found["properties"]["spec"], _name_rule("parent", "a queue"))
    return found


def _compute_pool() -> Schema:
    found = _kind(ComputePool, "Its devices, and who may hold how many.", "What it has, and what is free.")
    _bound_name(found)
    fields = found["properties"]["spec"]["properties"]
    fields["capacity"]["description"] = "How many devices it has."
    fields["virtualization"]["description"] = "Whether and how devices are divided."
    quotas = fields["quotas"]
    quotas["description"] = "How many devices each tenant may hold."
    quotas |= {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["tenant"]}
    quotas["items"]["description"] = "Quota of one tenant."
    _check(
        quotas["items"],
        Rule(
            "self.guaranteed <= self.limit",
            "'%d, expected at most limit, %d'.format([self.guaranteed, self.limit])",
            "expected at most limit",
            ".guaranteed",
        ),
    )
    _check(
        fields["capacity"],
        Rule(
            f"{_UNSET.format('total', 'reserved')} || self.total == 0 || self.reserved <= self.total",
            "'%d, expected at most total, %d'.format([self.reserved, self.total])",
            "expected at most total",
            ".reserved",
        ),
    )
    return found


def _kind(cls: type[msgspec.Struct], spec: str, status: str) -> Schema:
    """Return the schema of a kind: its fields without metadata, which the API server knows better."""
    found = struct_schema(cls)
    fields = found["properties"]
    del found["required"]
    version = {"type": "string", "description": f"{GROUP}/{VERSION}"}
    name = {"type": "string", "description": cls.__name__}
    fields["metadata"] = {"type": "object"}
    found["properties"] = {"apiVersion": version, "kind": name, **fields}
    fields["spec"]["description"] = spec
    fields["status"]["description"] = status
    fields["status"].pop("default", None)  # the server writes the first status
    conditions = fields["status"]["properties"]["conditions"]
    conditions["description"] = "What holds of it and what does not, each with its reason."
    conditions |= {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}
    _bound_condition(conditions["items"])
    return found


def _bound_condition(condition: Schema) -> None:
    """Add the bounds of `metav1.Condition`; the type is that of conditions of all kinds, which are only read."""
    condition["description"] = "One condition."
    fields = condition["properties"]
    fields["type"] |= {"minLength": 1, "maxLength": 316, "description": "What it is about."}
    fields["status"] |= {"enum": ["True", "False", "Unknown"], "description": "Whether it holds."}
    fields["reason"] |= {"maxLength": 1024, "description": "Why, as one word for programs."}
    fields["message"] |= {"maxLength": 32_768, "description": "Why, with numbers, for people."}
    fields["lastTransitionTime"] |= {"format": "date-time", "description": "Since when."}
    fields["observedGeneration"] |= {"minimum": 0, "description": "Generation of the spec that it is about."}


def _bound_name(kind: Schema) -> None:
    """Bound the name of an object: of `metadata`, Kubernetes lets a schema say this alone."""
    kind["properties"]["metadata"] = {
        "type": "object",
        "properties": {"name": {"type": "string", "maxLength": NAME_MAX}},
    }


def _check(schema: Schema, *rules: Rule) -> None:
    schema.setdefault("x-kubernetes-validations", []).extend(rule.body() for rule in rules)


def _name_rule(field: str, what: str) -> Rule:
    one = f"self.{field}"
    expected = f"expected the name of {what}: at most {NAME_MAX} letters, digits, '-', '_' and '.'"
    return Rule(
        f"!has({one}) || {one} == '' || (size({one}) <= {NAME_MAX} && {one}.matches('{_NAME}'))",
        f'{one} + ", {expected}"',
        expected,
        f".{field}",
    )


def _word_rule(field: str, value: str, why: str) -> Rule:
    """Return the rule that a field of a pod is absent, empty or `value`."""
    expected = f"expected {value} or none: {why}" if value else f"expected none: {why}"
    words = f"['', '{value}']" if value else "['']"
    return Rule(
        f"!has(self.{field}) || self.{field} in {words}",
        f"self.{field} + ', {expected}'",
        expected,
        f".{field}",
    )
