"""What `penstock manifests` installs, where there are roles and policies: the API server for tests has neither."""

import ssl
from typing import Any

import pytest
from msgspec.structs import replace

from penstock.engines.kubernetes.api.credentials import FixedToken
from penstock.engines.kubernetes.install.objects import account, namespace, objects, roles
from penstock.engines.kubernetes.install.policies import policies
from penstock.engines.kubernetes.install.values import Values
from tests.e2e_kubernetes.kube import ELASTIC, JOBS, KUBECONFIG, PODS, QUEUES, Kube, Object, on_cluster
from tests.e2e_kubernetes.live import Live, condition, standing, template, timed

pytestmark = pytest.mark.skipif(not KUBECONFIG, reason="PENSTOCK_E2E_KUBECONFIG names no cluster")
AT = "penstock"
SMALL, LARGE = Values(), Values(replicas=2, store_secret="database", cluster_config="file")


async def apply(k: Kube, one: Object, **query: str) -> None:
    """Apply an object as `kubectl apply --server-side` does."""
    root = "/api/v1" if one["apiVersion"] == "v1" else f"/apis/{one['apiVersion']}"
    served = k.right(await k.call("GET", root))["resources"]
    kind = next(found for found in served if found["kind"] == one["kind"] and "/" not in found["name"])
    at = f"/namespaces/{one['metadata']['namespace']}" if kind["namespaced"] else ""
    path = f"{root}{at}/{kind['name']}/{one['metadata']['name']}"
    asked = {"fieldManager": "penstock-e2e", "force": "true", **query}
    k.right(await k.call("PATCH", path, one, "application/apply-patch+yaml", **asked))


async def install(k: Kube) -> None:
    for one in (namespace(AT), account(AT), *roles(AT), *policies(f"system:serviceaccount:{AT}:penstock")):
        await apply(k, one)


async def token(k: Kube) -> str:
    """Return a token of the server's service account."""
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 600}}
    made = await k.call("POST", f"/api/v1/namespaces/{AT}/serviceaccounts/penstock/token", body)
    return str(k.right(made)["status"]["token"])


@pytest.mark.parametrize("values", [SMALL, LARGE], ids=["one server", "two servers"])
@on_cluster
async def test_the_api_server_accepts_every_object(k: Kube, values: Values) -> None:
    await apply(k, namespace(AT))
    for one in objects(values):
        await apply(k, one, dryRun="All", fieldValidation="Strict")


def test_the_rights_of_its_account_suffice_for_all_that_the_server_does() -> None:
    async def work() -> None:
        async with standing("n1") as c:
            await install(c)
            admin = c.access
            c.access = replace(admin, tokens=FixedToken(await token(c)), security=trusted(admin))
            async with c.serving():
                c.access = admin
                await everything(c)

    timed(work)


def trusted(access: Any) -> Any:
    """Return the server's trust without the client certificate of the administrator."""
    found = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    for one in access.security.get_ca_certs(binary_form=True):
        found.load_verify_locations(cadata=one)
    return found


async def everything(c: Live) -> None:
    """Let the server bind, evict, suspend, and make pods, and wait for each."""
    queue = f"{c.name}-q"
    await c.make(QUEUES, queue)
    await c.status(QUEUES, queue, observedGeneration=1)
    await c.ask("low", 4)
    await c.run("low")
    await c.ask("waits", 4)
    await c.waits("waits")
    await c.event("waits")
    await c.delete(PODS, "waits")
    high = await c.priority()
    await c.ask("urgent", 2, priorityClassName=high)
    await c.run("urgent")
    await c.gone(PODS, "low")
    await c.job("train", 1, 2)
    await c.has("train", 1)
    await c.ask("more", 2, priorityClassName=high)
    await c.run("more")
    assert (await c.known(JOBS, "train"))["spec"]["suspend"]
    await c.delete(JOBS, "train", propagationPolicy="Background")
    c.exits.update(urgent=0, more=0)
    await c.make(ELASTIC, "ej", spec={"template": template(0), "scaling": {"gpuPerReplica": 1}})
    await c.status(ELASTIC, "ej", phase="Running", readyReplicas=1)


@on_cluster
async def test_nobody_goes_round_the_quota_of_a_managed_namespace(k: Kube) -> None:
    await install(k)
    label = {"metadata": {"labels": {"penstock.dev/managed": "true"}}}
    k.right(await k.call("PATCH", f"/api/v1/namespaces/{k.name}", label, "application/merge-patch+json"))
    ours = {**template(1)["spec"]}

    async def tried(spec: Object, **meta: Any) -> str:
        body = {"metadata": {"name": "trial", **meta}, "spec": spec}
        answer = await k.call("POST", k.path(PODS), body, dryRun="All")
        return "" if answer.status == 201 else str(answer.body["message"])

    async def refused() -> str:
        return await tried({**ours, "schedulerName": "default-scheduler"})

    assert "set schedulerName to penstock" in await k.until(refused)
    assert "no pod may name its node" in await tried({**ours, "nodeName": "n1"})
    assert "written by Penstock alone" in await tried(ours, annotations={"penstock.dev/replica": "1.1.0"})
    assert await tried(ours) == ""
    job = {
        "metadata": {"name": "trial", "labels": {"penstock.dev/queue": "default"}},
        "spec": {"template": template(1)},
    }
    answer = await k.call("POST", k.path(JOBS), job, dryRun="All")
    assert "is created suspended" in answer.body["message"]
    await k.pod("web", schedulerName="penstock")
    assert "bound by Penstock alone" in (await k.bind("web")).body["message"]
    assert condition(await k.known(PODS, "web"), "PodScheduled") == {}
