"""The schemas of job files and cluster files: what editors show of each field, and that files follow them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from penstock.core.config.cluster import cluster_schema, parse_cluster
from penstock.core.config.job import request_schema
from penstock.core.config.settings import SETTINGS
from penstock.core.model.cluster import Settings

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))
SCHEMAS = {"job": request_schema(), "cluster": cluster_schema()}


def fields(schema: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Return every field of a schema at any depth, with its path."""
    if isinstance(schema, list):
        for one in schema:
            yield from fields(one, path)
    elif isinstance(schema, dict):
        for name, field in schema.get("properties", {}).items():
            yield f"{path}.{name}", field
            yield from fields(field, f"{path}.{name}")
        for key in ("anyOf", "items", "additionalProperties", "$defs"):
            inner = schema.get(key)
            yield from fields(list(inner.values()) if key == "$defs" and inner else inner, path)


@pytest.mark.parametrize("of", SCHEMAS)
def test_every_field_says_what_it_is_for(of):
    jsonschema.Draft202012Validator.check_schema(SCHEMAS[of])
    found = dict(fields(SCHEMAS[of]))
    assert len(found) > 80
    assert [path for path, field in found.items() if not field.get("description")] == []


@pytest.mark.parametrize("of", SCHEMAS)
def test_every_field_says_which_values_it_takes(of):
    kinds = {"type", "enum", "anyOf", "$ref"}
    assert [path for path, field in fields(SCHEMAS[of]) if not kinds & field.keys()] == []


@pytest.mark.parametrize("of", SCHEMAS)
def test_patterns_are_of_whole_values(of):
    kinds = [(path, one) for path, field in fields(SCHEMAS[of]) for one in (field, *field.get("anyOf", ()))]
    found = {path: one["pattern"] for path, one in kinds if "pattern" in one}
    assert found
    assert {path: text for path, text in found.items() if not (text.startswith("^") and text.endswith("$"))} == {}


def test_defaults_in_the_schema_are_those_of_the_reader():
    settings = cluster_schema()["properties"]["settings"]["properties"]
    shown = {name: field["default"] for name, field in settings.items() if "default" in field}
    assert parse_cluster({"settings": shown}) == parse_cluster({})
    empty = {name for name in SETTINGS.shown if getattr(Settings(), SETTINGS.fields[name].at or name) == ""}
    assert shown.keys() | empty == SETTINGS.shown.keys()


def test_settings_in_their_smallest_unit_are_marked_as_another_spelling():
    settings = cluster_schema()["properties"]["settings"]["properties"]
    assert settings["lease_ttl_ms"]["description"] == "lease_ttl in milliseconds"
    assert settings["lease_ttl_ms"]["deprecated"]
    assert "deprecated" not in settings["lease_ttl"]


def test_editors_complete_the_jobs_of_a_list():
    (of_list,) = (one for one in request_schema()["anyOf"] if "jobs" in one.get("properties", ()))
    assert of_list["properties"]["jobs"]["items"] == {"$ref": "#/$defs/fields"}
    wrong = {"jobs": [{"command": "x", "devcies": 2}]}
    assert not jsonschema.Draft202012Validator(request_schema()).is_valid(wrong)


def test_policies_of_extensions_are_no_mistake():
    validator = jsonschema.Draft202012Validator(cluster_schema())
    assert validator.is_valid({"root_policy": "ext:earliest_deadline"})
    assert not validator.is_valid({"root_policy": "earliest_deadline"})


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_examples_name_their_schema_and_follow_it(path):
    first, _, text = path.read_text().partition("\n")
    schema = path.parent / first.removeprefix("# yaml-language-server: $schema=")
    validator = jsonschema.Draft202012Validator(yaml.safe_load(schema.read_text()))
    assert list(validator.iter_errors(yaml.safe_load(text))) == []
