"""What is installed: manifests and chart say the same, and the server may do what it does, and nothing else."""

import json
import re

import pytest
import yaml
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.core.model.errors import InvalidInput
from penstock.engines.kubernetes.install import writing
from penstock.engines.kubernetes.install.objects import objects
from penstock.engines.kubernetes.install.rights import ROLES, SHADOW, own_roles
from penstock.engines.kubernetes.install.values import Values
from penstock.sim.apiserver.requests import Fault
from penstock.sim.apiserver.store import Kind
from penstock.sim.pods.world import PodWorld, play_world
from tests.engines.kubernetes import scenes, storage
from tests.engines.kubernetes import test_devices_tainting as tainted
from tests.engines.kubernetes import test_scenarios_devices as devices
from tests.engines.kubernetes.helpers import run, until
from tests.engines.kubernetes.test_engine_faults import withdrawn_start

FULL = Values(
    "ml", "registry.example/penstock:1", 2, "database", "5Gi", "1", "2Gi", "settings", "shares", network_policy=False
)
LOCAL_QUEUES = Kind("kueue.x-k8s.io", "v1beta1", "localqueues", "LocalQueue", True, scenes.PLAIN)
WORKLOADS = Kind("kueue.x-k8s.io", "v1beta1", "workloads", "Workload", True, scenes.PLAIN)
OPTIONAL = (scenes.JOB_SETS, scenes.RAY_CLUSTERS, scenes.RAY_JOBS, scenes.TRAIN_JOBS)
VERBS = {"GET": "get", "PATCH": "patch", "POST": "create", "PUT": "update", "DELETE": "delete"}


def rendered(values):
    """Render the chart as Helm would: conditions of the chart's own few forms, and plain values."""
    told = values._asdict()

    def holds(condition):
        one = condition.strip()
        if one.startswith("and "):
            return all(holds(part) for part in re.findall(r"\(([^()]*)\)", one))
        if one.startswith("not "):
            return not holds(one[4:])
        if one.startswith("gt (int "):
            return told["replicas"] > 1
        return bool(told[one.removeprefix(".Values.")])

    found = []
    for path, text in writing.chart("1.0").items():
        if path.startswith("crds/"):  # Helm does not render these, and takes them as they are
            found += yaml.safe_load_all(text)
        if not path.endswith(".yaml") or not path.startswith("templates/"):
            continue
        kept = re.sub(
            r"\{\{- if (.*?) \}\}\n(.*?)\{\{- end \}\}\n",
            lambda one: f"---\n{one[2]}" if holds(one[1]) else "",
            text,
            flags=re.DOTALL,
        )
        for name, value in told.items():
            kept = kept.replace(f"{{{{ .Values.{name} }}}}", str(value))
        kept = kept.replace("{{ .Release.Namespace }}", values.namespace)
        assert "{{" not in kept, path
        found += [one for one in yaml.safe_load_all(kept) if one is not None]
    return found


def key(one):
    return one["kind"], one["metadata"]["name"]


@pytest.mark.parametrize("values", [Values(), FULL, FULL._replace(cluster_config="", network_policy=True)])
def test_the_chart_says_what_the_manifests_say(values):
    plain = [one for one in objects(values) if one["kind"] != "Namespace"]
    assert sorted(rendered(values), key=key) == sorted(plain, key=key)


def test_definitions_come_before_all_that_needs_them():
    kinds = [one["kind"] for one in objects(Values())]
    assert kinds[:4] == ["Namespace", *["CustomResourceDefinition"] * 3]
    in_chart = [path for path, text in writing.chart("1.0").items() if "kind: CustomResourceDefinition" in text]
    assert in_chart == ["crds/elasticjobs.yaml", "crds/queues.yaml", "crds/computepools.yaml"]


def test_manifests_are_one_object_a_document():
    found = list(yaml.safe_load_all(writing.manifests(Values())))
    assert found == objects(Values())
    assert all({"apiVersion", "kind", "metadata"} <= one.keys() for one in found)


def test_the_server_runs_without_rights_on_its_node():
    (pod,) = (one["spec"]["template"]["spec"] for one in objects(FULL) if one["kind"] == "Deployment")
    (box,) = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"]
    assert pod["schedulerName"] == "default-scheduler", "what places pods must not wait for itself"
    assert box["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def test_several_replicas_need_a_database():
    with pytest.raises(InvalidInput, match="replicas: 2, expected 1 with SQLite"):
        objects(Values(replicas=2))
    kinds = [one["kind"] for one in objects(Values(replicas=2, store_secret="db"))]
    assert "PodDisruptionBudget" in kinds
    assert "PersistentVolumeClaim" not in kinds


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("namespace", "Team_A", "a name"), ("namespace", "", "a name"), ("image", "a b", "an image"),
        ("storage", "ten", "an amount"), ("replicas", 4, "1 to 3"), ("store_secret", "a/b", "a name"),
        ("queue_config", "", "a name"), ("queue_config", "A", "a name"),
    ],
)  # fmt: skip
def test_a_bad_value_is_named(field, value, expected):
    with pytest.raises(InvalidInput, match=rf"^{field}: .*expected {expected}"):
        objects(Values(**{field: value}))


def test_the_command_prints_manifests_and_writes_a_chart(tmp_path):
    told = CliRunner().invoke(app, ["manifests", "--namespace", "ml"])
    assert list(yaml.safe_load_all(told.stdout)) == objects(Values("ml"))
    folder = tmp_path / "chart"
    told = CliRunner().invoke(app, ["manifests", "--chart", str(folder)])
    assert told.exit_code == 0
    assert yaml.safe_load((folder / "values.yaml").read_text())["replicas"] == 1
    assert json.loads((folder / "values.schema.json").read_text())["additionalProperties"] is False
    again = CliRunner().invoke(app, ["manifests", "--chart", str(folder)])
    assert again.exit_code != 0


# Rights.


def test_the_queues_config_map_is_the_only_one_that_may_be_read():
    found = [one for one in objects(FULL) if one["kind"] in ("Role", "RoleBinding")]
    assert [(one["kind"], one["metadata"]["namespace"]) for one in found] == [("Role", "ml"), ("RoleBinding", "ml")]
    follow = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list", "watch"], "resourceNames": ["shares"]}
    assert found[0]["rules"] == [follow]
    assert found[1]["roleRef"]["kind"] == "Role"
    (pod,) = (one["spec"]["template"]["spec"] for one in objects(FULL) if one["kind"] == "Deployment")
    words = pod["containers"][0]["args"]
    assert words[words.index("--queue-config") + 1] == "shares"


def rights_for(seen):
    """Return (group, resource, verb) of a request; nothing for what every account may ask.

    A list as a stream counts as a list too: servers without such streams are asked for that.
    """
    parts = seen.path.strip("/").split("/")
    group, rest = ("", parts[2:]) if parts[0] == "api" else (parts[1] if len(parts) > 1 else "", parts[3:])
    if not rest:
        return set()
    if rest[0] == "namespaces" and len(rest) > 2:
        rest = rest[2:]
    resource = "/".join((rest[0], *rest[2:]))
    verb = VERBS[seen.method]
    if resource == "resourceclaims/status":  # since 1.36 both are needed for what a scheduler writes there
        return {(group, resource, verb), (group, "resourceclaims/binding", verb)}
    if verb == "get" and len(rest) == 1:
        verb = "watch" if seen.query.get("watch") else "list"
    return {(group, resource, verb), (group, resource, "list" if seen.query.get("sendInitialEvents") else verb)}


DECLARED = (("queues", "research"), ("computepools", "a100"))


async def three_attempts(s):
    """Let the pods of an ElasticJob's first attempt be removed when the third one begins."""
    scaling = {"minReplicas": 1, "maxReplicas": 1}
    s.make("penstock.dev/elasticjobs", "again", {"template": scenes.template(0), "scaling": scaling})
    for attempt in (1, 2):
        await until(
            lambda name=f"again-{attempt}-0": (s.get(name) or {"status": {}})["status"].get("phase") == "Running"
        )
        s.ends(f"again-{attempt}-0", 1)
    await until(lambda: s.get("again-3-0") is not None and s.get("again-1-0") is None)


async def everything(s):
    """Let each optional kind be read and started."""
    pods = {"replicatedJobs": [{"name": "w", "replicas": 1, "template": {"spec": {"template": scenes.template(1)}}}]}
    labels = {"penstock.dev/queue": "default"}
    s.make(scenes.JOB_SETS, "set", {"suspend": True, **pods}, labels=labels)
    group = {"groupName": "w", "replicas": 1, "template": scenes.template(1)}
    ray = {"headGroupSpec": {"template": scenes.template(0)}, "workerGroupSpecs": [group]}
    s.make(scenes.RAY_CLUSTERS, "ray", {"suspend": True, **ray}, labels=labels)
    s.make(scenes.RAY_JOBS, "rayjob", {"suspend": True, "rayClusterSpec": ray}, labels=labels)
    train = s.make(scenes.TRAIN_JOBS, "train", {"suspend": True}, labels=labels)
    s.make(scenes.JOB_SETS, "train", {"suspend": True, **pods}, owner=train)
    for kind, name in ((scenes.JOB_SETS, "set"), (scenes.RAY_CLUSTERS, "ray"), (scenes.RAY_JOBS, "rayjob")):
        await until(lambda kind=kind, name=name: not s.suspended(name, kind.plural))
    await until(lambda: not s.suspended("train", "trainjobs"))
    s.make("penstock.dev/queues", "research", {})
    s.make("penstock.dev/computepools", "a100", {})
    await until(lambda: all(s.store.all_of(kind)["", name].get("status") for kind, name in DECLARED))
    storage.storage_class(s, "zonal")
    storage.local_class(s)
    storage.volume(s, "disk", on={storage.HOST: "n1"})
    for name, of in (("made", "zonal"), ("there", "local")):
        storage.claim(s, name, of)
    s.pod("reader", gpus=0, volumes=storage.using("made", "there"))
    await until(lambda: s.where("reader") == ["n1"])
    devices.gpus(s, 1)
    s.api.faults.append(Fault("PATCH", "resourceclaims", 409))
    s.pod("first", gpus=0, **devices.USES)
    await devices.bound(s, "first")
    box = {"name": "main", "image": "none", "resources": {"limits": {"deviceclass.resource.kubernetes.io/gpu": "1"}}}
    s.ends("first")
    s.pod("second", containers=[box])
    await devices.bound(s, "second")
    s.gang("big", 3, gpus=4)
    await s.waits("big-0")
    await until(lambda: s.events("big-0"))


def asked_for():
    found = set()

    async def work():
        async with scenes.scene("n1", "n2", "n3", kinds=(scenes.COSCHEDULING, *OPTIONAL)) as s:
            await everything(s)
            found.update(*map(rights_for, s.api.seen))
        async with scenes.scene("n1", kinds=(scenes.VOLCANO,)) as s:
            await withdrawn_start(s)
            await three_attempts(s)
            found.update(*map(rights_for, s.api.seen))

        closed = {"n1": "it failed"}
        async with tainted.keeping(closed) as server:
            await until(lambda: len(tainted.rules(server)) == 1)
            closed.clear()
            await until(lambda: not tainted.rules(server))
            found.update(*map(rights_for, server.seen))

    run(work)
    for seed in range(25):
        world = PodWorld(seed)
        play_world(world)
        found.update(*map(rights_for, world.api.seen))
    return found


def test_the_server_has_the_rights_that_it_uses_and_no_others():
    granted = {
        (rule.group, resource, verb)
        for rules in (*ROLES.values(), *own_roles("penstock-queues").values())
        for rule in rules
        for resource in rule.resources
        for verb in rule.verbs
    }
    assert asked_for() == granted


def test_a_shadow_has_the_rights_that_it_uses_and_they_are_to_read():
    found = set()

    async def work():
        for group in (scenes.COSCHEDULING, scenes.VOLCANO):
            kinds = (group, *OPTIONAL, LOCAL_QUEUES, WORKLOADS)
            async with scenes.scene("n1", kinds=kinds, shadow=True) as s:
                s.pod("train", schedulerName="default-scheduler")
                await until(lambda s=s: s.states() == {"train": "waiting"})
                found.update(*map(rights_for, s.api.seen))
        async with scenes.scene("n1", shadow=True) as s:
            found.update(*map(rights_for, s.api.seen))

    run(work)
    (rules,) = SHADOW.values()
    assert found == {(rule.group, one, verb) for rule in rules for one in rule.resources for verb in rule.verbs}
    assert {verb for _, _, verb in found} == {"list", "watch"}


def test_what_a_shadow_installs_can_only_read():
    found = objects(Values(shadow=True))
    assert [one["metadata"]["name"] for one in found if one["kind"] == "ClusterRole"] == ["penstock-shadow"]
    kinds = {one["kind"] for one in found}
    assert kinds.isdisjoint({"CustomResourceDefinition", "ValidatingAdmissionPolicy", "FlowSchema"})
    (deployment,) = [one for one in found if one["kind"] == "Deployment"]
    pod = deployment["spec"]["template"]["spec"]
    assert "--shadow" in pod["containers"][0]["args"]
    assert "priorityClassName" not in pod
    with pytest.raises(InvalidInput, match="replicas: 2, expected 1 for a shadow"):
        Values(replicas=2, store_secret="database", shadow=True).check()
