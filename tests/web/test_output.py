"""Output and reports of real jobs on their pages: as written, followed, searched, drawn; and why one failed."""

import re
import sys
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.server.harness import SOURCES, Jobs, Server
from tests.web.browsing import Viewer

PRINTS = """
printf '\\033[32mgreen\\033[0m <b>bold</b> \\033]8;;https://evil.example\\007link\\033]8;;\\007\\n'
for i in 1 2 3; do echo "line $i needle"; done
printf 'progress 1\\rprogress 2\\n'
while [ ! -e "$PENSTOCK_CHECKPOINT_DIR/../go" ]; do sleep 0.05; done
echo and on; sleep 600
"""

TRAINS = """
import os, time
from penstock import training
with training.session() as run:
    for step in run.steps(6):
        run.report(loss=(4.0, float("nan"), 2.0, 1.0, 0.5, 0.0625)[step], **{"eval/f1": 0.5})
        run._reporter._last_progress_s = -1e9  # each report is written, however fast
        while step == 3 and not os.path.exists(os.environ["GO"]): time.sleep(0.05)
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


def test_numbers_that_a_program_reports_are_drawn_while_it_runs(real, page_of, tmp_path):
    jobs = Jobs(real.client)
    go = tmp_path / "go"
    number = jobs.submit([sys.executable, "-c", TRAINS], name="trains", env={"PYTHONPATH": SOURCES, "GO": str(go)})
    one = page_of(f"/jobs/{number}?tab=metrics")
    loss = one.page.locator(".card:has(h2:text-is('Loss'))")
    loss.locator("text=between 1 and 4").wait_for()
    assert loss.locator(".strange").inner_text() == "1 value was NaN or infinite"
    assert loss.get_by_role("img").get_attribute("aria-label") == "Loss by step, 1 attempt. Latest: 1 at step 4"
    over = loss.locator(".u-over")
    box = over.bounding_box()
    over.drag_to(over, source_position={"x": 1, "y": 50}, target_position={"x": box["width"] / 2, "y": 50})
    go.touch()
    loss.locator("strong:text-is('0.0625')").wait_for()
    assert jobs.ended(number).state == "succeeded"
    right = {"x": box["width"] - 1, "y": 50}
    over.hover(position=right)
    shown = loss.locator(".u-legend .u-value")
    expect(shown.first, "what is looked at closely stays").to_have_text(re.compile("^[23] "))
    over.dblclick(position=right)
    over.hover(position={"x": box["width"] - 2, "y": 60})
    loss.locator(".u-legend .u-value:text-is('0.0625')").wait_for()
    expect(shown.first).to_have_text(re.compile(r"^6 · \d\d:\d\d:\d\d$"))
    one.page.get_by_role("button", name="Logarithmic").click()
    one.page.get_by_label("Smoothing").fill("0.5")
    assert "scale=log" in one.page.url
    assert "smooth=0.5" in one.page.url
    loss.locator(".u-legend .u-series.raw").wait_for(state="attached")
    assert one.page.locator("main h2").all_inner_texts()[:3] == ["Reported by the program", "Loss", "eval/f1"]


def test_where_nothing_is_reported_the_page_says_how_to(real, page_of):
    jobs = Jobs(real.client)
    number = jobs.submit("true", name="says nothing")
    jobs.ended(number)
    one = page_of(f"/jobs/{number}?tab=metrics")
    one.page.locator("text=The program reports no numbers").wait_for()
    assert "run.report(loss=loss" in one.page.locator(".empty code").inner_text()
