"""Images that lie unpacked in a folder: run by Charliecloud and bubblewrap, as children of the agent's gate."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.core.messages.orders import StopReplica
from penstock.core.model.containers import ImageAsk, Mount
from penstock.core.model.jobs import ExitInfo
from tests.engines.agent.fakeserver import FakeServer
from tests.engines.containers import images

RUNTIMES = [("charliecloud", "ch-run"), ("bubblewrap", "bwrap")]


@pytest.fixture(scope="module")
def server() -> Iterator[FakeServer]:
    """A server with one agent of whoever runs the tests, in a folder that accounts can pass."""
    root = Path(tempfile.mkdtemp(prefix="penstock-folders-"))
    root.chmod(0o711)
    made = FakeServer(root / "data")
    made.data.root.chmod(0o711)
    (root / "sets").mkdir(mode=0o755)
    (root / "sets" / "one").write_text("rows")
    try:
        made.agent()
        made.ready()
        yield made
    finally:
        made.close()
        shutil.rmtree(root, ignore_errors=True)


@pytest.fixture(params=RUNTIMES, ids=[kind for kind, _ in RUNTIMES])
def asked(request: pytest.FixtureRequest, server: FakeServer) -> ImageAsk:
    """The image in its folder, for one of the runtimes."""
    kind, program = request.param
    images.need(program)
    folder = images.unpacked(server.data.root.parent)
    sets = str(server.data.root.parent / "sets")
    return ImageAsk(str(folder), "never", kind, (Mount(sets, "/in/sets", read_only=True),), folders=(sets,))


@pytest.mark.parametrize(
    ("command", "wanted"),
    [(("true",), ExitInfo(0)), (("sh", "-c", "exit 7"), ExitInfo(7)), (("sh", "-c", "kill -9 $$"), None)],
)
def test_programs_end_as_they_end_without_a_container(server, asked, command, wanted):
    ended = server.ended(server.start(*command, image=asked))
    assert ended == wanted if wanted else ended in (ExitInfo(signal=9), ExitInfo(137))


def test_a_program_sees_the_image_and_its_own_folders(server, asked):
    lines = "cat /in/sets/one; echo; ls /bin/busybox; pwd; touch $PENSTOCK_CHECKPOINT_DIR/saved; echo $HOME"
    key = server.start("sh", "-c", lines, image=asked)
    assert server.ended(key) == ExitInfo(0), server.data.output(key).read_text()
    own = str(server.data.work(key.job_id))
    assert server.data.output(key).read_text().split() == ["rows", "/bin/busybox", own, own]
    assert (server.data.checkpoints(key.job_id) / "saved").exists()


def test_a_program_that_heeds_the_stop_may_save_and_leave(server, asked):
    key = server.start(
        "sh", "-c", "trap 'echo saved; exit 5' TERM; echo ready; while :; do sleep 0.05; done", image=asked
    )
    server.said(key, "ready")
    server.order(StopReplica(key, 30_000))
    assert server.ended(key) in (ExitInfo(5, stop_sent=True), ExitInfo(signal=15, stop_sent=True))
    server.said(key, "saved")


def test_a_folder_that_is_not_there_ends_the_job_with_the_reason(server):
    ended = server.ended(server.start("true", image=ImageAsk("/no/such/image")))
    assert (ended.code, ended.note) == (126, "its image cannot be used: there is no folder /no/such/image on this node")


def test_an_image_runs_only_in_what_the_cluster_allows(server):
    ended = server.ended(server.start("true", image=ImageAsk("/images/train", among=("podman",))))
    why = "the cluster allows none of the runtimes for it: podman"
    assert ended == ExitInfo(126, note=f"its image cannot be used: {why}")
