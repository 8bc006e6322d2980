"""Below which groups of version 2 an agent puts its boxes: as root, delegated to a user, in a container.

On a real kernel, in a mount namespace where version 2 is all there is. Where version 1 has the controllers, boxes have
no limits there, which is what is said; `make test-cgroup2` runs the same tests where they have.
"""

import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.engines.processes import cgroup_v2

TOP = Path("/sys/fs/cgroup")
TREE = next((path for path in (TOP, TOP / "unified") if (path / "cgroup.controllers").exists()), None)
LIMITED = TREE is not None and {"cpu", "memory"} <= {*(TREE / "cgroup.controllers").read_text().split()}
NAME = f"penstock-test-delegated-{os.getpid()}"
BOXES = f"{NAME}-boxes"
NOBODY = 65534
UNLIMITED = "cgroup v2 (limits of cpu are not enforced; memory is weighed)"
KIND = "cgroup v2" if LIMITED else UNLIMITED
LIMITS = ("50000 100000", str(48 << 20)) if LIMITED else ("", "")
pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0 or shutil.which("unshare") is None, reason="only root makes namespaces"),
    pytest.mark.skipif(TREE is None, reason="no control groups of version 2"),
]


@pytest.fixture
def groups() -> Iterator[Path]:
    """Return a group that has a group `scope`; both are gone when the test ends, and what was made in them."""
    top = TREE / NAME
    (top / "scope").mkdir(parents=True)
    if LIMITED:
        for folder in (TREE, top):
            (folder / "cgroup.subtree_control").write_text("+cpu +memory +pids")
    yield top
    for group, _, _ in os.walk(top, topdown=False):
        os.rmdir(group)


def given(folder: Path, uid: int = NOBODY) -> None:
    """Give a group to a user, as systemd delegates one."""
    for path in (folder, *(folder / name for name in ("cgroup.procs", "cgroup.subtree_control", "cgroup.threads"))):
        os.chown(path, uid, uid)


def agent(group: str, uid: int, *, namespace: bool = False) -> dict:
    """Return what an agent finds that starts in a group, with version 2 at the usual place.

    Args:
        namespace: a container's: the group is the root of what it sees.
    """
    words = [sys.executable, "-P", str(Path(__file__).with_name("delegated.py")), str(TOP), str(uid), BOXES]
    mount, run = f"mount -t tmpfs none {TOP} && mount -t cgroup2 cgroup {TOP}", shlex.join(words)
    if namespace:
        enter = f"echo $$ > {TREE / group}/cgroup.procs"
        script = f"{enter} && exec unshare -C -m sh -c {shlex.quote(f'{mount} && exec {run}')}"
    else:
        words[3] = f"{TOP}/{group}"
        script = f"{mount} && exec {shlex.join(words)}"
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", script], capture_output=True, text=True, env=os.environ, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_seen_from_a_container_its_own_group_is_the_root_and_is_cleared_for_the_boxes(groups):
    said = agent(f"{NAME}/scope", 0, namespace=True)
    assert (said["kind"], said["program"]) == (KIND, f"/{BOXES}/n1.1")
    assert said["agent"] == said["server"] == (f"/{cgroup_v2.LEAF}" if LIMITED else "/")
    assert (said["cpu"], said["memory"]) == LIMITS


def test_root_has_its_boxes_below_the_root_and_moves_nobody(groups):
    said = agent(f"{NAME}/scope", 0)
    assert (said["kind"], said["agent"], said["server"]) == (KIND, f"/{NAME}/scope", f"/{NAME}/scope")
    assert said["program"] == f"/{BOXES}/n1.1"
    assert (said["cpu"], said["memory"]) == LIMITS


def test_in_a_group_that_is_delegated_to_a_user_the_agent_moves_into_a_leaf_and_has_its_boxes_beside_it(groups):
    given(groups / "scope")
    said = agent(f"{NAME}/scope", NOBODY)
    agents = f"/{NAME}/scope" + (f"/{cgroup_v2.LEAF}" if LIMITED else "")
    assert (said["agent"], said["server"], said["program"]) == (agents, agents, f"/{NAME}/scope/{BOXES}/n1.1")
    assert (said["kind"], said["again"], said["left"]) == (KIND, KIND, False)
    assert (said["cpu"], said["memory"]) == LIMITS
    assert said["used_us"] is not None


def test_in_a_group_that_is_not_delegated_nobody_is_moved_and_it_is_said_that_limits_do_not_hold(groups):
    given(groups)
    given(groups / "scope")
    said = agent(f"{NAME}/scope", NOBODY)
    scope = f"/{NAME}/scope"
    assert (said["agent"], said["server"], said["program"]) == (scope, scope, f"{scope}/{BOXES}/n1.1")
    assert (said["kind"], said["again"], said["left"]) == (UNLIMITED, UNLIMITED, False)


def test_what_systemd_marks_as_delegated_is(groups):
    given(groups)
    given(groups / "scope")
    os.setxattr(groups / "scope", "user.delegate", b"1")
    said = agent(f"{NAME}/scope", NOBODY)
    assert said["kind"] == KIND
    assert said["agent"] == f"/{NAME}/scope" + (f"/{cgroup_v2.LEAF}" if LIMITED else "")


@pytest.mark.parametrize(
    ("memberships", "tops"),
    [
        ("0::/\n", ["/"]),
        ("0::/user.slice/penstock.scope\n", ["/", "/user.slice/penstock.scope"]),
        ("1:cpu:/x\n0::/user.slice/penstock.scope/penstock-agents\n", ["/", "/user.slice/penstock.scope"]),
        ("", ["/"]),
    ],
)
def test_boxes_are_at_the_root_or_beside_the_agents_leaf(memberships, tops):
    assert cgroup_v2._tops(memberships) == [TOP / top.lstrip("/") for top in tops]
