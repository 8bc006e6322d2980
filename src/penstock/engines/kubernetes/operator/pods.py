"""What stands for an ElasticJob in the cluster: a pod for each replica, and a service by which ranks find each other.

A pod is named after its job, attempt and rank: what an attempt before has said can still be read. Its host name is that
of its rank alone, the same in every attempt. Variables: docs.pytorch.org (env:// and torchrun's PET_*), docs.nvidia.com
(NCCL).
"""

from collections.abc import Iterable
from typing import Any

from penstock.core.messages.orders import StartReplica
from penstock.engines.kubernetes.asks import SCHEDULER
from penstock.engines.kubernetes.gangs.gang import replica_labels
from penstock.engines.kubernetes.names import (
    CLUSTER_ANNOTATION,
    DEVICES_ANNOTATION,
    ELASTIC_JOB_LABEL,
    REPLICA_ANNOTATION,
    TEMPLATE_ANNOTATION,
)
from penstock.engines.kubernetes.objects.common import Metadata
from penstock.engines.kubernetes.objects.penstock import GROUP, VERSION, ElasticJob, Network, template_hash, template_of

Object = dict[str, Any]
CLAIMS = (REPLICA_ANNOTATION, DEVICES_ANNOTATION, CLUSTER_ANNOTATION)
"""Annotations that no template may bring: they come with the Binding."""


def name_of(job: str, attempt: int, rank: int) -> str:
    return f"{job}-{attempt}-{rank}"


def service_of(one: ElasticJob) -> Object:
    """Return the service that gives each rank its host name, also before it is ready."""
    meta = one.metadata
    spec = {
        "clusterIP": "None",
        "selector": {ELASTIC_JOB_LABEL: meta.name},
        "publishNotReadyAddresses": True,
        "ports": [{"name": "rendezvous", "port": one.spec.network.port}],
    }
    own = {"name": meta.name, "namespace": meta.namespace, "ownerReferences": [_owner(meta)]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": own, "spec": spec}


def pod_of(one: ElasticJob, order: StartReplica) -> Object:
    """Return the pod of one replica. Raises: msgspec.ValidationError."""
    template, key, meta = template_of(one), order.key, one.metadata
    told: Object = template.get("metadata") or {}
    spec: Object = template.get("spec") or {}
    labels = {**(told.get("labels") or {}), ELASTIC_JOB_LABEL: meta.name, **replica_labels(key)}
    spec |= {
        "schedulerName": SCHEDULER,
        "restartPolicy": "Never",  # a rank that started again alone would wait for the others for ever
        "hostname": f"{meta.name}-{key.rank}",
        "subdomain": meta.name,
        "terminationGracePeriodSeconds": -(-order.grace_ms // 1000),
    }
    spec.pop("nodeName", None)
    annotations = {name: text for name, text in (told.get("annotations") or {}).items() if name not in CLAIMS}
    annotations[TEMPLATE_ANNOTATION] = template_hash(one)
    variables = environment(one, order)
    for container in (*spec.get("initContainers", ()), *spec.get("containers", ())):
        container["env"] = _with(container.get("env") or [], variables)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name_of(meta.name, key.attempt, key.rank),
            "namespace": meta.namespace,
            "labels": labels,
            "annotations": annotations,
            "ownerReferences": [_owner(meta)],
        },
        "spec": spec,
    }


def environment(one: ElasticJob, order: StartReplica) -> dict[str, str]:
    """Return the variables of a replica: of PyTorch and torchrun, of NCCL, and what Penstock tells every program."""
    meta, key, network = one.metadata, order.key, one.spec.network
    master, size = f"{meta.name}-0.{meta.name}.{meta.namespace}.svc", str(order.world_size)
    rank, port = str(key.rank), str(network.port)
    return {
        "MASTER_ADDR": master,
        "MASTER_PORT": port,
        "WORLD_SIZE": size,
        "RANK": rank,
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "NODE_RANK": rank,
        "GROUP_RANK": rank,
        "PET_NNODES": size,
        "PET_NODE_RANK": rank,
        "PET_MASTER_ADDR": master,
        "PET_MASTER_PORT": port,
        "PENSTOCK_JOB_ID": str(key.job_id),
        "PENSTOCK_JOB_NAME": meta.name,
        "PENSTOCK_ATTEMPT": str(key.attempt),
        "PENSTOCK_NODES": ",".join(order.node_names),
        "PENSTOCK_GRACE_S": f"{order.grace_ms / 1000:g}",
        **({"PENSTOCK_BATCH": f"{order.batch.local},{order.batch.accumulation}"} if order.batch is not None else {}),
        **_nccl(network),
    }


def _nccl(network: Network) -> dict[str, str]:
    """Return NCCL's settings for a kind of network."""
    found = {"NCCL_IB_DISABLE": "1" if network.kind == "ethernet" else "0"}
    if network.kind == "roce":
        found["NCCL_IB_ROCE_VERSION_NUM"] = "2"
    if network.interface:
        found["NCCL_SOCKET_IFNAME"] = found["GLOO_SOCKET_IFNAME"] = network.interface
    return found


def _with(known: Iterable[Object], variables: dict[str, str]) -> list[Object]:
    """Return a container's variables behind ours, which they can refer to; what it says of NCCL itself counts."""
    known = list(known)
    kept = {one.get("name") for one in known if str(one.get("name", "")).startswith(("NCCL_", "GLOO_"))}
    ours = [{"name": name, "value": value} for name, value in variables.items() if name not in kept]
    return [*ours, *(one for one in known if one.get("name") not in variables or one.get("name") in kept)]


def _owner(meta: Metadata) -> Object:
    return {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": "ElasticJob",
        "name": meta.name,
        "uid": meta.uid,
        "controller": True,
        "blockOwnerDeletion": False,
    }
