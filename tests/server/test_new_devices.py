"""A device that appears while a whole server runs is offered to waiting jobs; it is that of an installed package."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server import harness
from tests.server.harness import Jobs, Server

PROVIDER = """
from pathlib import Path
from penstock.devices.reading import DeviceFacts, Reading

LIST = Path(__file__).with_name("cards")


class Cards:
    vendor, variables, files = "acme", ("ACME_VISIBLE_DEVICES",), ()

    def is_present(self, sources):
        return True

    def inventory(self, sources):
        names = enumerate(LIST.read_text().split())
        facts = [DeviceFacts(index=place, uuid=name, model="A1", memory_bytes=2**30) for place, name in names]
        return Reading(devices=tuple(facts))

    sample = inventory

    def closed_files(self, given, here):
        return ()

    def container_flags(self, given):
        return ()
"""


@pytest.fixture
def cards(tmp_path: Path) -> Path:
    """The names of the machine's devices, a file that a test may change."""
    package = tmp_path / "packages"
    described = package / "acme_cards-1.dist-info"
    described.mkdir(parents=True)
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-cards\nVersion: 1\n")
    (described / "entry_points.txt").write_text("[penstock.devices]\nacme = acme_cards:Cards\n")
    (package / "acme_cards.py").write_text(PROVIDER)
    listed = package / "cards"
    listed.write_text("CARD-A")
    return listed


@pytest.fixture
def server(tmp_path: Path, cards: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(harness, "SOURCES", f"{harness.SOURCES}:{cards.parent}")
    with Server(tmp_path / "data", {"nodes": [{"name": "n1", "cpus": 4, "memory": "1GiB"}]}) as running:
        yield running


def test_a_waiting_job_gets_a_device_that_appears_and_the_running_one_goes_on(server: Server, cards: Path):
    jobs = Jobs(server.client)
    acme = {"count": 1, "vendor": "acme"}
    first = jobs.submit("sleep 600", devices=acme)
    jobs.state(first, "running")
    second = jobs.submit("echo sees $ACME_VISIBLE_DEVICES", devices=acme)
    assert server.client.job(second).state == "waiting"
    cards.write_text("CARD-B CARD-A")  # it comes first in the list of its driver
    jobs.ended(second)
    jobs.said(second, "sees CARD-B")
    assert server.client.job(first).state == "running"
    assert server.client.job(first).attempt == 1
    jobs.close()
