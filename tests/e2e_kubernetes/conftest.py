"""A cluster gets the definitions of our kinds, as `penstock manifests` has them, before the first case."""

import asyncio
from typing import Any

import aiohttp
import pytest

from penstock.engines.kubernetes.install.crds import crds
from tests.e2e_kubernetes.kube import ELASTIC, KUBECONFIG, POOLS, QUEUES, STEP_S, Kube, server

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


@pytest.fixture(scope="session", autouse=True)
def definitions() -> None:
    if KUBECONFIG:
        asyncio.run(asyncio.wait_for(_define(crds()), 30))


async def _define(wanted: list[dict[str, Any]]) -> None:
    async with server() as (access, _):
        connector = aiohttp.TCPConnector(ssl=access.security or True)
        async with aiohttp.ClientSession(access.server, connector=connector) as session:
            k = Kube(access, session, "", None)
            for one in wanted:
                path = f"{DEFINITIONS}/{one['metadata']['name']}"
                query = {"fieldManager": "penstock-e2e", "force": "true"}
                k.right(await k.call("PATCH", path, one, "application/apply-patch+yaml", **query))
            for root in (ELASTIC, QUEUES, POOLS):
                while (await k.call("GET", root)).status != 200:
                    await asyncio.sleep(STEP_S)
