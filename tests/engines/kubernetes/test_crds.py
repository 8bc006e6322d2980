"""The definitions of our kinds say what their types say, and an upgrade refuses nothing that was stored before."""

import copy
import json
import re
from fractions import Fraction
from pathlib import Path

import jsonschema
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import inspect

from penstock.engines.kubernetes.install.crds import crds
from penstock.engines.kubernetes.install.schemas import QUANTITY, struct_schema
from penstock.engines.kubernetes.objects.common import Condition
from penstock.engines.kubernetes.objects.penstock import ComputePool, ElasticJob, Queue
from penstock.formats.quantities import kubernetes_quantity
from tests.properties import examples

KINDS = {"ElasticJob": ElasticJob, "Queue": Queue, "ComputePool": ComputePool}
SNAPSHOT = Path(__file__).parent / "data" / "crds-v1alpha1.json"
TEMPLATE = {"spec": {"containers": [{"name": "main", "image": "training"}]}}
QUOTA = {"tenant": "a", "limit": 1}
UPPER = ("maximum", "maxLength", "maxItems", "maxProperties")
LOWER = ("minimum", "minLength", "minItems", "minProperties")


def schema_of(kind):
    (found,) = [one for one in crds() if one["spec"]["names"]["kind"] == kind]
    (version,) = found["spec"]["versions"]
    return version["schema"]["openAPIV3Schema"]


def nodes(schema, path=""):
    """Yield each node of a schema with its path."""
    yield path, schema
    for name, one in schema.get("properties", {}).items():
        yield from nodes(one, f"{path}.{name}")
    for inner in ("items", "additionalProperties"):
        if inner in schema:
            yield from nodes(schema[inner], f"{path}[]")


def strict(schema):
    """Return a schema that refuses unknown fields, which the API server would drop."""
    found = copy.deepcopy(schema)
    for path, node in list(nodes(found)):
        if "properties" in node and path != ".metadata" and "x-kubernetes-preserve-unknown-fields" not in node:
            node["additionalProperties"] = False
    return found


def validate(kind, body):
    jsonschema.validate(body, strict(schema_of(kind)))


# What the types allow, and what they do not.


def values(info, name=""):
    """Return a strategy for the wire form of a type."""
    match info:
        case inspect.Metadata():
            return values(info.type, name) if name != "template" else st.just(TEMPLATE)
        case inspect.StructType(cls=cls) if cls is Condition:
            return st.fixed_dictionaries({"type": st.sampled_from(["Ready", "Placed"]), "status": st.just("True")})
        case inspect.StructType():
            fields = {one.encode_name: values(one.type, one.encode_name) for one in info.fields}
            required = {one.encode_name for one in info.fields if one.required}
            return st.fixed_dictionaries(
                {name: one for name, one in fields.items() if name in required},
                optional={name: one for name, one in fields.items() if name not in required},
            )
        case inspect.LiteralType():
            return st.sampled_from(info.values)
        case inspect.BoolType():
            return st.booleans()
        case inspect.IntType():
            return st.integers(info.ge or 0, 2**53 if info.le is None else info.le)
        case inspect.StrType():
            return st.text("abc", min_size=info.min_length or 0, max_size=min(info.max_length or 8, 8))
        case inspect.DictType():
            amounts = st.integers(0, 2**53) | st.sampled_from(["64Gi", "1500m", "0.5", "1e3"])
            return st.dictionaries(st.sampled_from(["cpu", "memory", "devices"]), amounts)
        case inspect.VarTupleType():
            return st.lists(values(info.item_type), max_size=2)
        case inspect.UnionType():
            return st.one_of([values(one) for one in info.types if not isinstance(one, inspect.NoneType)])
    raise AssertionError(info)


def parts_of(kind):
    fields = {one.name: one.type for one in inspect.type_info(KINDS[kind]).fields}
    return st.fixed_dictionaries({part: values(fields[part]) for part in ("spec", "status")})


@pytest.mark.parametrize("kind", KINDS)
def test_what_the_types_write_is_valid(kind):
    @examples(100)
    @given(parts_of(kind))
    def holds(parts):
        body = {"metadata": {"name": "one"}, **parts}
        written = json.loads(msgspec.json.encode(msgspec.convert(body, KINDS[kind])))
        validate(kind, {"spec": {}, **written})

    holds()


@pytest.mark.parametrize(
    ("kind", "spec"),
    [
        ("ElasticJob", {"network": {"kind": "token-ring"}}), ("ElasticJob", {"priority": -1}),
        ("ElasticJob", {"priority": 1001}), ("ElasticJob", {"scaling": {"maxReplicas": 0}}),
        ("ElasticJob", {"suspend": "yes"}), ("ElasticJob", {"pool": "a" * 254}), ("ElasticJob", {"template": []}),
        ("Queue", {"weight": 0}), ("Queue", {"preemptionPolicy": "Always"}), ("Queue", {"maxCapacity": {"cpu": []}}),
        ("ComputePool", {"poolType": "cpu"}), ("ComputePool", {"capacity": {"total": -1}}),
        ("ComputePool", {"quotas": [{"tenant": "a"}]}), ("ComputePool", {"quotas": [{**QUOTA, "tenant": ""}]}),
        ("ComputePool", {"quotas": [QUOTA] * 1001}),
    ],
)  # fmt: skip
def test_what_the_types_refuse_is_refused(kind, spec):
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"metadata": {"name": "one"}, "spec": spec}, KINDS[kind])
    with pytest.raises(jsonschema.ValidationError):
        validate(kind, {"spec": spec})


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("ElasticJob", {}), ("ElasticJob", {"spec": {"template": {"spec": {"containers": [{"image": "a"}]}}}}),
        ("ElasticJob", {"spec": {"replicas": 1}}), ("Queue", {"metadata": {"name": "a" * 64}}),
        ("ComputePool", {"metadata": {"name": "a" * 64}}), ("Queue", {"spec": {"maxCapacity": {"cpu": -1}}}),
        ("Queue", {"spec": {"maxCapacity": {"cpu": "-1"}}}), ("Queue", {"spec": {"maxCapacity": {"cpu": "lots"}}}),
        ("Queue", {"status": {"conditions": [{"type": "Ready", "status": "Maybe"}]}}),
        ("Queue", {"status": {"used": {"cpu": 1.5}}}),
    ],
)  # fmt: skip
def test_what_only_the_schema_refuses(kind, body):
    with pytest.raises(jsonschema.ValidationError):
        validate(kind, body)


@examples(500)
@given(st.from_regex(r"[+]?[0-9.]{1,4}([eE][+-]?[0-9]{1,2}|[numkKMGTPE]?i?)", fullmatch=True))
def test_a_quantity_of_the_schema_is_one_that_is_read(text):
    try:
        read = kubernetes_quantity(text, capped=True) >= Fraction(0)
    except ValueError:
        read = False
    assert bool(re.search(QUANTITY, text)) == read


# The same fields, and the same defaults.


def fields_of(info, path=""):
    """Yield path and field of everything in a type."""
    while isinstance(info, inspect.Metadata):
        info = info.type
    if isinstance(info, inspect.StructType):
        for field in info.fields:
            yield f"{path}.{field.encode_name}", field, info.cls
            yield from fields_of(field.type, f"{path}.{field.encode_name}")
    elif isinstance(info, inspect.VarTupleType):
        yield from fields_of(info.item_type, f"{path}[]")


def typed(kind):
    """Return the fields of a kind by path, but for its metadata."""
    found = fields_of(inspect.type_info(KINDS[kind]))
    return {path: (field, cls) for path, field, cls in found if not path.startswith(".metadata")}


@pytest.mark.parametrize("kind", KINDS)
def test_schema_and_type_have_the_same_fields(kind):
    kept = {path for path, _ in nodes(schema_of(kind)) if not path.startswith((".spec.template.", ".metadata."))}
    fields = {path for path in kept if path and not path.endswith("[]")}
    assert fields == {*typed(kind), ".apiVersion", ".kind", ".metadata"}


@pytest.mark.parametrize("kind", KINDS)
def test_schema_and_type_have_the_same_defaults(kind):
    schemas = dict(nodes(schema_of(kind)))
    for path, (field, cls) in typed(kind).items():
        expected = field.default
        if isinstance(expected, msgspec.Struct):
            left_out = path == ".status" or (kind, path) == ("ElasticJob", ".spec")
            expected = None if left_out else {}
        elif expected in ("", (), inspect.NODEFAULT) or cls is Condition:
            expected = None  # absent is the same as empty
        found = schemas[path].get("default")
        assert (found, type(found)) == (expected, type(expected)), path


def test_a_type_without_a_schema_is_an_error():
    class Odd(msgspec.Struct):
        when: bytes

    class Choice(msgspec.Struct):
        which: int | bool

    for cls in (Odd, Choice):
        with pytest.raises(TypeError, match="no structural schema"):
            struct_schema(cls)


# What Kubernetes wants of a schema and a definition.


def violations(schema):
    """Return what breaks the rules of structural schemas, as far as a generator can break them.

    Source: https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/
    """
    found = []
    for path, node in nodes(schema):
        if "type" not in node and not node.get("x-kubernetes-int-or-string"):
            found.append(f"{path}: no type")
        if "$ref" in node or ("properties" in node and "additionalProperties" in node):
            found.append(f"{path}: a reference, or additionalProperties beside properties")
        if any("default" in one for word in ("anyOf", "oneOf", "allOf") for one in node.get(word, ())):
            found.append(f"{path}: a default in a choice")
        if "default" in node and (not path.strip(".") or path.startswith(".metadata")):
            found.append(f"{path}: a default of the object or its metadata")
        if node.get("x-kubernetes-list-type") == "map":
            keys = node["x-kubernetes-list-map-keys"]
            found += [f"{path}: key {key} is not required" for key in keys if key not in node["items"]["required"]]
        if "default" in node and not jsonschema.Draft202012Validator(node).is_valid(node["default"]):
            found.append(f"{path}: the default is not valid")
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_schemas_are_structural(kind):
    assert not violations(schema_of(kind))


@pytest.mark.parametrize("kind", KINDS)
def test_lists_maps_and_fields_are_bounded_and_described(kind):
    for path, node in nodes(schema_of(kind)):
        assert node.get("type") != "array" or "maxItems" in node, path
        assert "additionalProperties" not in node or "maxProperties" in node, path
        if path and not path.endswith("[]") and not path.startswith((".metadata", ".spec.template.spec.containers")):
            assert node.get("description"), path


def test_paths_of_columns_scale_and_rules_are_fields():
    for one in crds():
        schema = schema_of(one["spec"]["names"]["kind"])
        (version,) = one["spec"]["versions"]
        scale = version["subresources"].get("scale", {})
        paths = [*scale.values(), *(column["jsonPath"] for column in version["additionalPrinterColumns"])]
        known = {path for path, _ in nodes(schema)} | {".metadata.creationTimestamp"}
        assert {re.sub(r"\[\?.*?\]\.", "[].", path) for path in paths} <= known
        for path, node in nodes(schema):
            for rule in node.get("x-kubernetes-validations", ()):
                assert f"{path}{rule.get('fieldPath', '')}" in known
                assert "expected" in rule["message"]
                assert "expected" in rule["messageExpression"]


def test_definitions_have_the_names_that_users_type():
    found = {one["metadata"]["name"]: one["spec"] for one in crds()}
    short = {name: (one["names"]["shortNames"], one["scope"]) for name, one in found.items()}
    assert short == {
        "elasticjobs.penstock.dev": (["ej"], "Namespaced"),
        "queues.penstock.dev": (["pq"], "Cluster"),
        "computepools.penstock.dev": (["cp"], "Cluster"),
    }
    assert all(one["names"]["categories"] == ["penstock"] for one in found.values())
    assert all("status" in one["versions"][0]["subresources"] for one in found.values())


# Upgrades.


def narrowed(old, new, path=""):
    """Return where a schema refuses, drops or changes what an older one took: nothing where it only extends it."""
    found = []
    for word in ("type", "format", "pattern", "default", "x-kubernetes-list-type", "x-kubernetes-list-map-keys"):
        if old.get(word) != new.get(word):
            found.append(f"{path}: {word} was {old.get(word)}, is {new.get(word)}")
    for word in ("x-kubernetes-int-or-string", "x-kubernetes-preserve-unknown-fields"):
        if old.get(word) and not new.get(word):
            found.append(f"{path}: {word} is gone")
    for word in UPPER:
        if word in new and new[word] < old.get(word, float("inf")):
            found.append(f"{path}: {word} was {old.get(word)}, is {new[word]}")
    for word in LOWER:
        if word in new and new[word] > old.get(word, float("-inf")):
            found.append(f"{path}: {word} was {old.get(word)}, is {new[word]}")
    if "enum" in new and not set(old.get("enum", [None])) <= set(new["enum"]):
        found.append(f"{path}: enum was {old.get('enum')}, is {new['enum']}")
    found += [f"{path}.{name}: now required" for name in set(new.get("required", ())) - set(old.get("required", ()))]
    rules = [{one["rule"] for one in each.get("x-kubernetes-validations", ())} for each in (old, new)]
    found += [f"{path}: new rule {rule}" for rule in sorted(rules[1] - rules[0])]
    for name, one in old.get("properties", {}).items():
        field = new.get("properties", {}).get(name)
        found += [f"{path}.{name}: gone"] if field is None else narrowed(one, field, f"{path}.{name}")
    for inner in ("items", "additionalProperties"):
        if inner in old:
            found += narrowed(old[inner], new[inner], f"{path}[]") if inner in new else [f"{path}: no {inner}"]
    return found


def stored():
    return {one["metadata"]["name"]: one["spec"] for one in json.loads(SNAPSHOT.read_text())}


def test_an_upgrade_only_extends_the_definitions():
    """Compares with what has been released as v1alpha1.

    After an extension is released, renew the snapshot, and never to make this test pass:
    `python -c "import json; from penstock.engines.kubernetes.install.crds import crds; print(json.dumps(crds(),
    indent=1))" > tests/engines/kubernetes/data/crds-v1alpha1.json`.
    """
    current = {one["metadata"]["name"]: one["spec"] for one in crds()}
    for name, old in stored().items():
        new = current[name]
        assert {**old, "versions": None} == {**new, "versions": None}, "names and scope never change"
        assert [(v["name"], v["storage"]) for v in new["versions"]] == [("v1alpha1", True)]
        schemas = [each["versions"][0]["schema"]["openAPIV3Schema"] for each in (old, new)]
        assert not narrowed(*schemas)


def _changes():
    """Return changes of a field of a Queue that break stored objects."""
    return {
        "type": lambda spec: spec["properties"]["weight"].update(type="string"),
        "default": lambda spec: spec["properties"]["weight"].update(default=2),
        "maximum": lambda spec: spec["properties"]["weight"].update(maximum=10),
        "minimum": lambda spec: spec["properties"]["weight"].update(minimum=2),
        "maxLength was": lambda spec: spec["properties"]["parent"].update(maxLength=63),
        "minLength was None": lambda spec: spec["properties"]["parent"].update(minLength=1),
        "pattern": lambda spec: spec["properties"]["parent"].update(pattern="^a"),
        "enum was": lambda spec: spec["properties"]["preemptionPolicy"]["enum"].remove("Never"),
        "enum was None": lambda spec: spec["properties"]["parent"].update(enum=["a"]),
        "gone": lambda spec: spec["properties"].pop("weight"),
        "now required": lambda spec: spec.update(required=["parent"]),
        "new rule": lambda spec: spec["x-kubernetes-validations"].append({"rule": "false"}),
        "no additionalProperties": lambda spec: spec["properties"]["maxCapacity"].pop("additionalProperties"),
        "int-or-string is gone": lambda spec: spec["properties"]["maxCapacity"]["additionalProperties"].pop(
            "x-kubernetes-int-or-string"
        ),
        "maxProperties": lambda spec: spec["properties"]["maxCapacity"].update(maxProperties=1),
    }


@pytest.mark.parametrize("expected", _changes())
def test_each_narrowing_is_seen(expected):
    spec = schema_of("Queue")["properties"]["spec"]
    changed = copy.deepcopy(spec)
    _changes()[expected](changed)
    (found,) = narrowed(spec, changed)
    assert expected in found


def test_an_extension_is_no_narrowing():
    spec = schema_of("Queue")["properties"]["spec"]
    wider = copy.deepcopy(spec)
    wider["properties"]["note"] = {"type": "string", "maxLength": 10}
    wider["properties"]["weight"]["maximum"] *= 2
    wider["properties"]["preemptionPolicy"]["enum"].append("Always")
    wider["x-kubernetes-validations"].clear()
    assert not narrowed(spec, wider)
