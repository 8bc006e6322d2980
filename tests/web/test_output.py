"""The output of a real job on its page: as written, followed, searched, downloaded; and why one failed."""

from pathlib import Path

import pytest

from tests.server.harness import Jobs, Server
from tests.web.browsing import Viewer

PRINTS = """
printf '\\033[32mgreen\\033[0m <b>bold</b> \\033]8;;https://evil.example\\007link\\033]8;;\\007\\n'
for i in 1 2 3; do echo "line $i needle"; done
printf 'progress 1\\rprogress 2\\n'
while [ ! -e "$PENSTOCK_CHECKPOINT_DIR/../go" ]; do sleep 0.05; done
echo and on; sleep 600
"""


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    with Server(tmp_path_factory.mktemp("pages") / "data") as running:
        yield running


class Address:
    """A server as `Viewer` knows one."""

    def __init__(self, server: Server) -> None:
        self.url = f"http://127.0.0.1:{server.port}"


@pytest.fixture
def page_of(real, browser):
    made = []

    def opened(page: str) -> Viewer:
        made.append(Viewer(browser, Address(real), real.token))
        made[-1].sign_in(page)
        return made[-1]

    yield opened
    problems = [problem for one in made for problem in one.problems]
    for one in made:
        one.close()
    assert problems == []


def test_output_is_shown_followed_and_searched(real, page_of, tmp_path):
    jobs = Jobs(real.client)
    go = tmp_path / "go"
    number = jobs.submit(["sh", "-c", PRINTS.replace("$PENSTOCK_CHECKPOINT_DIR/../go", str(go))], name="prints")
    jobs.state(number, "running")
    one = page_of(f"/jobs/{number}?tab=log")
    lines = one.page.locator(".log-line")
    one.page.locator(".log-line:has-text('progress 2')").wait_for()
    assert lines.nth(0).inner_text().strip() == "green <b>bold</b> link"
    assert lines.nth(0).locator(".ansi-green").inner_text() == "green"
    assert one.page.locator(".log-lines a, .log-lines b").count() == 0
    assert "progress 1" not in one.page.locator(".log-lines").inner_text()
    go.touch()
    one.page.locator(".log-line:has-text('and on')").wait_for()
    one.page.get_by_label("Search the output").fill("NEEDLE")
    one.page.get_by_role("button", name="Search").click()
    one.page.locator(".matches li").nth(2).wait_for()
    assert one.page.locator(".matches mark").all_inner_texts() == ["needle"] * 3
    with one.page.expect_download() as download:
        one.page.get_by_role("button", name="Download").click()
    assert Path(download.value.path()).read_bytes().startswith(b"\x1b[32mgreen")
    jobs.close()


def test_a_failed_job_says_why_first(real, page_of):
    jobs = Jobs(real.client)
    number = jobs.submit(["python3", "-c", "import nothere"], name="fails")
    jobs.ended(number)
    one = page_of(f"/jobs/{number}")
    one.page.locator(".card:has-text('Diagnosis') >> text=nothere").first.wait_for()
    one.page.get_by_role("link", name="See its output").click()
    one.page.locator(".log-line:has-text('ModuleNotFoundError')").wait_for()
