"""All objects of an installation, in the order in which they are created."""

from collections.abc import Mapping

from penstock.engines.kubernetes.install.crds import crds
from penstock.engines.kubernetes.install.meta import MATCH, NAME, Object, meta
from penstock.engines.kubernetes.install.policies import policies
from penstock.engines.kubernetes.install.rights import ROLES, SHADOW, Rule
from penstock.engines.kubernetes.install.rights import own_roles as own_rights
from penstock.engines.kubernetes.install.values import PORT, Values

KEPT = {"helm.sh/resource-policy": "keep"}
"""Of the volume with the log: uninstalling the chart leaves it."""
USER = 65532
"""The user and group that the server runs as."""


def objects(values: Values) -> list[Object]:
    """Return the objects. Raises: InvalidInput."""
    values.check()
    at = values.namespace
    if values.shadow:
        found = [namespace(at), account(at), *roles(at, SHADOW)]
    else:
        own = own_roles(at, values.queue_config)
        access = [account(at), *roles(at), *own, *policies(f"system:serviceaccount:{at}:{NAME}"), flow_schema(at)]
        found = [namespace(at), *crds(), *access]
    if not values.store_secret:
        found.append(volume(at, values.storage))
    found += [deployment(values), service(at)]
    if values.replicas > 1:
        found.append(budget(at))
    if values.network_policy:
        found.append(network_policy(at))
    return found


def namespace(at: str) -> Object:
    found = meta(at)
    found["labels"]["pod-security.kubernetes.io/enforce"] = "restricted"
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": found}


def account(at: str) -> Object:
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta(NAME, at)}


def roles(at: str, granted: Mapping[str, tuple[Rule, ...]] = ROLES) -> list[Object]:
    return [one for name, rules in granted.items() for one in _role(name, rules, at)]


def own_roles(at: str, queue_config: str) -> list[Object]:
    """Return roles that count in the server's own namespace alone."""
    return [one for name, rules in own_rights(queue_config).items() for one in _role(name, rules, at, within=at)]


def _role(name: str, rules: tuple[Rule, ...], at: str, *, within: str = "") -> list[Object]:
    """Return a role of the server, and its binding. Args: within: a namespace; empty: the whole cluster."""
    kind, version = "Role" if within else "ClusterRole", "rbac.authorization.k8s.io/v1"
    of = {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name}
    subject = {"kind": "ServiceAccount", "name": NAME, "namespace": at}
    role = {"kind": kind, "metadata": meta(name, within), "rules": [rule.body() for rule in rules]}
    bound = {"kind": f"{kind}Binding", "metadata": meta(name, within), "roleRef": of, "subjects": [subject]}
    return [{"apiVersion": version, **role}, {"apiVersion": version, **bound}]


def flow_schema(at: str) -> Object:
    """Return what keeps the server's requests from waiting behind those of others: the level of the scheduler's own."""
    subject = {"kind": "ServiceAccount", "serviceAccount": {"name": NAME, "namespace": at}}
    every = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "clusterScope": True, "namespaces": ["*"]}
    paths = {"verbs": ["*"], "nonResourceURLs": ["*"]}
    spec = {
        "priorityLevelConfiguration": {"name": "workload-high"},
        "matchingPrecedence": 900,
        "distinguisherMethod": {"type": "ByUser"},
        "rules": [{"subjects": [subject], "resourceRules": [every], "nonResourceRules": [paths]}],
    }
    return {
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1",
        "kind": "FlowSchema",
        "metadata": meta(NAME),
        "spec": spec,
    }


def volume(at: str, size: str) -> Object:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": meta(f"{NAME}-data", at, annotations=KEPT),
        "spec": spec,
    }


def deployment(values: Values) -> Object:
    several = bool(values.store_secret)
    strategy: Object = {"type": "Recreate"}  # a volume has one writer
    if several:
        strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}}
    spec = {
        "replicas": values.replicas,
        "strategy": strategy,
        "selector": {"matchLabels": MATCH},
        "template": {"metadata": {"labels": MATCH}, "spec": _pod(values)},
    }
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta(NAME, values.namespace), "spec": spec}


def _pod(values: Values) -> Object:
    data: Object = {"name": "data", "persistentVolumeClaim": {"claimName": f"{NAME}-data"}}
    if values.store_secret:
        data = {"name": "data", "emptyDir": {}}
    volumes = [data, {"name": "tmp", "emptyDir": {}}]
    if values.cluster_config:
        volumes.append({"name": "cluster", "configMap": {"name": values.cluster_config}})
    spread = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": MATCH},
    }
    return {
        "serviceAccountName": NAME,
        "schedulerName": "default-scheduler",
        **({} if values.shadow else {"priorityClassName": "system-cluster-critical"}),
        "terminationGracePeriodSeconds": 30,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": USER,
            "fsGroup": USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "topologySpreadConstraints": [spread],
        "containers": [_container(values)],
        "volumes": volumes,
    }


def _container(values: Values) -> Object:
    arguments = ["--data", "/data/server", "up", "--foreground", "--engine", "kubernetes"]
    arguments += ["--shadow"] if values.shadow else []
    arguments += ["--host", "0.0.0.0", "--port", str(PORT), "--tls"]  # noqa: S104 - in its own pod
    arguments += ["--name", f"{NAME}.{values.namespace}.svc", "--queue-config", values.queue_config]
    mounts = [{"name": "data", "mountPath": "/data"}, {"name": "tmp", "mountPath": "/tmp"}]  # noqa: S108 - the pod's
    if values.cluster_config:
        arguments += ["--cluster", "/etc/penstock/cluster.yaml"]
        mounts.append({"name": "cluster", "mountPath": "/etc/penstock"})
    variables: list[Object] = [
        {"name": "HOME", "value": "/data"},
        {"name": "PENSTOCK_TRUSTED_FOLDERS", "value": "/data"},  # the kubelet lets the pod's group write there
    ]
    if values.store_secret:
        key = {"name": values.store_secret, "key": "url"}
        variables.append({"name": "PENSTOCK_STORE", "valueFrom": {"secretKeyRef": key}})
    health = {"httpGet": {"path": "/api/v1/health", "port": "api", "scheme": "HTTPS"}}
    return {
        "name": NAME,
        "image": values.image,
        "args": arguments,
        "env": variables,
        "ports": [{"name": "api", "containerPort": PORT}],
        "startupProbe": {**health, "periodSeconds": 2, "failureThreshold": 60},
        "readinessProbe": {**health, "periodSeconds": 5},
        "livenessProbe": {**health, "periodSeconds": 10, "failureThreshold": 6},
        "resources": {
            "requests": {"cpu": values.cpu, "memory": values.memory},
            "limits": {"memory": values.memory},
        },
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": mounts,
    }


def service(at: str) -> Object:
    spec = {"selector": MATCH, "ports": [{"name": "api", "port": PORT, "targetPort": "api"}]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": meta(NAME, at), "spec": spec}


def budget(at: str) -> Object:
    spec = {"maxUnavailable": 1, "selector": {"matchLabels": MATCH}}
    return {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": meta(NAME, at), "spec": spec}


def network_policy(at: str) -> Object:
    """Return what lets in the API alone; the server itself may go anywhere: the API server and the database."""
    spec = {
        "podSelector": {"matchLabels": MATCH},
        "policyTypes": ["Ingress"],
        "ingress": [{"ports": [{"port": "api", "protocol": "TCP"}]}],
    }
    return {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": meta(NAME, at), "spec": spec}
