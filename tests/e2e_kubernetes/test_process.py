"""`penstock up --engine kubernetes`, killed and started again."""

import asyncio
import contextlib
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.e2e_kubernetes.kube import KUBECONFIG, PODS
from tests.e2e_kubernetes.live import Live, standing, timed

PROCESSES_WAIT_S = 90.0


def kubeconfig(c: Live, root: Path) -> Path:
    """Return the kubeconfig of a case's server."""
    if KUBECONFIG:
        return Path(KUBECONFIG).absolute()
    path = root / "kubeconfig"
    told = {
        "current-context": "test",
        "contexts": [{"name": "test", "context": {"cluster": "test"}}],
        "clusters": [{"name": "test", "cluster": {"server": c.access.server}}],
    }
    path.write_text(json.dumps(told))
    return path


@contextlib.contextmanager
def penstock(c: Live, root: Path) -> Iterator["subprocess.Popen[bytes]"]:
    words = ["up", "--engine", "kubernetes", "--kubeconfig", str(kubeconfig(c, root)), "--foreground"]
    command = [sys.executable, "-P", "-m", "penstock.cli.main", "--data", str(root / "data"), *words]
    with (root / "log").open("ab") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            yield process
            assert process.poll() is None or process.returncode == -signal.SIGKILL, (root / "log").read_text()[-2000:]
        finally:
            process.kill()


def test_a_killed_server_leaves_pods_running_and_goes_on_when_it_is_started_again(tmp_path: Path) -> None:
    async def work() -> None:
        async with standing("n1") as c:
            with penstock(c, tmp_path) as first:
                await c.ask("before", 2)
                await c.run("before")
                uid = (await c.known(PODS, "before"))["metadata"]["uid"]
                first.kill()
                await asyncio.to_thread(first.wait)
            await c.ask("after", 2)
            with penstock(c, tmp_path):
                assert await c.run("after") == ["n1"]
                assert (await c.known(PODS, "before"))["metadata"]["uid"] == uid

    timed(work, PROCESSES_WAIT_S)
