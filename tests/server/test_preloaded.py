"""A server that is forked from a process with all modules, and its agents, are as those that are started anew."""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.engines.local.launch import agent_pid
from tests.server import preloaded
from tests.server.harness import Server, cluster_file

STATUS = re.compile(
    r"^(Umask|Groups|CapInh|CapEff|NoNewPrivs|Seccomp|Sig(?:Blk|Ign|Cgt)):\t(?:.{8}(?=.{8}$))?(.*)", re.M
)
"""Of signals those below 33: libc takes the others for its threads."""


class Anew(Server):
    anew = True


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Server]]:
    folder = tmp_path_factory.mktemp("alike")
    with Server(folder / "a", cluster_file(1)) as forked, Anew(folder / "b", cluster_file(1)) as anew:
        if not isinstance(forked.process, preloaded.Forked):
            pytest.skip("nothing is forked here")
        yield forked, anew


def facts(server: Server, pid: int) -> dict[str, Any]:
    """Return what a process has of its start, as `/proc` shows it."""
    folder, root = Path(f"/proc/{pid}"), bytes(server.root)
    told: dict[str, Any] = {
        name: (folder / name).read_bytes().replace(root, b"ROOT") for name in ("cmdline", "limits", "cgroup")
    }
    told["environ"] = sorted((folder / "environ").read_bytes().replace(root, b"ROOT").split(b"\0"))
    links = {name: os.readlink(folder / name).replace(str(server.root), "ROOT") for name in ("exe", "cwd")}
    streams = [os.readlink(folder / "fd" / name).replace(str(server.root), "ROOT") for name in ("0", "1", "2")]
    relations = (os.getsid(pid) == pid, os.getsid(pid) == os.getsid(0), os.getpgid(pid) == os.getpgid(0))
    status = STATUS.findall((folder / "status").read_text())
    opened = [os.readlink(link).replace(str(server.root), "ROOT") for link in (folder / "fd").iterdir()]
    told["opened"] = {re.sub(r"\d+", "N", link) for link in opened}  # how often: as the threads are at it
    return told | links | {"streams": streams, "relations": relations, "status": status}


def guardian(server: Server) -> int:
    pid = agent_pid(server.data, "n1")
    assert pid
    return pid


def worker(server: Server) -> int:
    pid = guardian(server)
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])


@pytest.mark.parametrize("which", [lambda one: one.process.pid, guardian, worker], ids=["server", "guardian", "worker"])
def test_a_forked_process_is_as_one_that_was_started_anew(servers, which):
    forked, anew = servers
    assert facts(forked, which(forked)) == facts(anew, which(anew))


def test_a_forked_server_tells_how_it_ended(tmp_path):
    with Server(tmp_path / "data", cluster_file(0)) as server:
        assert server.process.poll() is None
        server.process.kill()
        assert (server.process.wait(10), server.process.poll(), server.process.returncode) == (-9, -9, -9)


def test_a_server_with_other_settings_of_python_is_started_anew(servers, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONHASHSEED", "7")
    with Server(tmp_path / "data", cluster_file(0)) as server:
        assert not isinstance(server.process, preloaded.Forked)
