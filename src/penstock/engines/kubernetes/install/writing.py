"""The same objects as manifests for `kubectl apply -f`, and as a Helm chart.

Where a value decides which objects there are, the chart has each variant under its condition: nothing is written twice
by hand, and what Helm renders is what the manifests say.
"""

import json
from collections.abc import Iterator
from itertools import product
from typing import Any

import yaml

from penstock.engines.kubernetes.install import objects as parts
from penstock.engines.kubernetes.install.crds import crds
from penstock.engines.kubernetes.install.meta import NAME, Object
from penstock.engines.kubernetes.install.objects import objects
from penstock.engines.kubernetes.install.policies import policies
from penstock.engines.kubernetes.install.values import Values, schema

_REPLICAS = 987_654_321
"""Stands for the chart's number of replicas while objects are made."""
_SLOTS = {
    "namespace": ("slot-namespace", "{{ .Release.Namespace }}"),
    "image": ("slot-image", '"{{ .Values.image }}"'),
    "store_secret": ("slot-store", '"{{ .Values.store_secret }}"'),
    "storage": ("slot-storage", '"{{ .Values.storage }}"'),
    "cpu": ("slot-cpu", '"{{ .Values.cpu }}"'),
    "memory": ("slot-memory", '"{{ .Values.memory }}"'),
    "queue_config": ("slot-queues", "{{ .Values.queue_config }}"),
    "cluster_config": ("slot-cluster", '"{{ .Values.cluster_config }}"'),
}
_NOTES = """Penstock runs in {{ .Release.Namespace }}. Its command line, without a token of your own:

  kubectl --namespace {{ .Release.Namespace }} exec deploy/penstock -- penstock --data /data/server status

Pods with schedulerName penstock are placed by it. Namespaces in which nothing may go round their queues:

  kubectl label namespace NAME penstock.dev/managed=true
"""


class _Dumper(yaml.SafeDumper):
    """Writes objects that stand in two places twice, not by reference."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def text_of(one: Object) -> str:
    return yaml.dump(one, Dumper=_Dumper, sort_keys=False, width=1_000_000)


def manifests(values: Values) -> str:
    """Return the manifests. Raises: InvalidInput."""
    return "---\n".join(text_of(one) for one in objects(values))


def chart(version: str) -> dict[str, str]:
    """Return the files of the Helm chart, by path."""
    about = {
        "apiVersion": "v2",
        "name": NAME,
        "description": "Scheduler for machine-learning jobs on shared accelerators",
        "type": "application",
        "version": version,
        "appVersion": version,
        "kubeVersion": ">=1.30.0-0",
    }
    defaults = Values()._asdict()
    del defaults["namespace"], defaults["shadow"]
    return {
        "Chart.yaml": text_of(about),
        "values.yaml": text_of(defaults),
        "values.schema.json": json.dumps(schema(), indent=2) + "\n",
        **{f"crds/{one['spec']['names']['plural']}.yaml": text_of(one) for one in crds()},
        "templates/NOTES.txt": _NOTES,
        **{f"templates/{name}.yaml": text for name, text in _templates()},
    }


def _templates() -> Iterator[tuple[str, str]]:
    at = _SLOTS["namespace"][0]
    own = parts.own_roles(at, _SLOTS["queue_config"][0])
    fixed = [parts.account(at), *parts.roles(at), *own, *policies(f"system:serviceaccount:{at}:{NAME}")]
    yield "access", "---\n".join(map(_template, fixed))
    yield "flowschema", _template(parts.flow_schema(at))
    yield "service", _template(parts.service(at))
    yield "volume", _when("not .Values.store_secret", _template(parts.volume(at, _SLOTS["storage"][0])))
    yield "budget", _when("gt (int .Values.replicas) 1", _template(parts.budget(at)))
    yield "networkpolicy", _when(".Values.network_policy", _template(parts.network_policy(at)))
    yield "deployment", "".join(_variants())


def _variants() -> Iterator[str]:
    """Yield the Deployment for each answer to whether there is a database, and a configuration."""
    filled = {name: slot for name, (slot, _) in _SLOTS.items()}
    for stored, configured in product((False, True), repeat=2):
        absent = {name: "" for name, there in (("store_secret", stored), ("cluster_config", configured)) if not there}
        values = Values(**{**filled, **absent}, replicas=_REPLICAS)  # type: ignore[arg-type]
        conditions = [
            ".Values.store_secret" if stored else "not .Values.store_secret",
            ".Values.cluster_config" if configured else "not .Values.cluster_config",
        ]
        yield _when(f"and ({conditions[0]}) ({conditions[1]})", _template(parts.deployment(values)))


def _when(condition: str, text: str) -> str:
    return f"{{{{- if {condition} }}}}\n{text}{{{{- end }}}}\n"


def _template(one: Object) -> str:
    text = text_of(one).replace("{{", "{{ `{{` }}")
    for slot, value in _SLOTS.values():
        text = text.replace(slot, value)
    return text.replace(str(_REPLICAS), "{{ .Values.replicas }}")
