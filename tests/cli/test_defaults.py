"""The tutorial's cluster: what a newcomer types there first works without naming a tenant."""

from pathlib import Path

import pytest
import yaml

from tests.cli.conftest import Terminal
from tests.server.harness import Server

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="module")
def tutorial(tmp_path_factory):
    declared = yaml.safe_load((EXAMPLES / "cluster.yaml").read_text())
    with Server(tmp_path_factory.mktemp("tutorial"), declared) as found:
        yield found


@pytest.fixture
def penstock(tutorial, tmp_path):
    return Terminal(tmp_path, tutorial.data.root, tutorial.root)


@pytest.mark.parametrize(
    "words",
    [
        ("submit", "--", "true"),
        ("submit", "--devices", "2", "--priority", "low", "--", "true"),
        ("plan", "--", "true"),
        ("run", "--", "true"),
        ("lease", "1", "--for", "1m", "--no-wait"),
        ("submit", str(EXAMPLES / "chain.yaml")),
    ],
)
def test_jobs_that_name_no_tenant_are_taken(penstock, words):
    told = penstock(*words)
    assert (told.code, told.err.count("error")) == (0, 0), told.err


def test_whoami_says_where_jobs_go(penstock):
    assert "jobs that name no tenant go to vision, those that name no queue to default" in penstock("whoami").out
    found = penstock("whoami", "--json").json()
    assert (found["default_tenant"], found["default_queue"]) == ("vision", "default")


def test_without_a_default_the_error_says_what_to_type_and_that_works(penstock):
    assert penstock("admin", "set", "settings.default_tenant=", "-y").code == 0
    told = penstock("submit", "--", "true")
    assert (told.code, "you may submit jobs for vision, speech, research" in told.err) == (2, True)
    assert "a default for all: penstock admin set settings.default_tenant=vision" in told.err
    assert penstock("submit", "--tenant", "vision", "--", "true").code == 0
    assert penstock("admin", "set", "settings.default_tenant=vision", "-y").code == 0
    assert penstock("submit", "--", "true").code == 0
