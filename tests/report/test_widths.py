"""Pages on a telephone, a tablet and a desk: words stay whole, and wide tables scroll in a box of their own.

Chromium lays the pages out, each in a frame as wide as the screen.
"""

import html
import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from msgspec.structs import replace

from penstock.core.model import events as ev
from penstock.report.invoice.page import page as invoice_page
from penstock.report.run import build, render
from penstock.report.simulation.page import render as simulation_page
from penstock.sim.replay.compare import compare
from penstock.sim.replay.execution_model import Physics
from penstock.sim.replay.variants import variant
from penstock.testing.builders import config
from tests.report.invoice.samples import month
from tests.sim.replay.builders import job, trace

WIDTHS = (390, 768, 1280)
PAGES = ("run", "simulation", "invoice", "rechnung")
LONG_WORD = "x" * 150
MEASURE = """
const lines=r=>new Set([...r.getClientRects()].filter(b=>b.width>0).map(b=>Math.round(b.top))).size;
function measure(frame){
  const d=frame.contentDocument,w=frame.contentWindow,broken=[],r=d.createRange();
  const texts=d.createTreeWalker(d.body,NodeFilter.SHOW_TEXT);
  for(let t=texts.nextNode();t;t=texts.nextNode()){
    if(t.parentElement.closest("script,style,svg"))continue;
    for(const m of t.data.matchAll(/[A-Za-z]{2,25}/g)){
      if(/[A-Za-z]/.test(t.data[m.index+m[0].length]||""))continue;
      r.setStart(t,m.index);r.setEnd(t,m.index+m[0].length);if(lines(r)>1)broken.push(m[0])}}
  const hidden=[...d.querySelectorAll("td,th")].filter(c=>c.scrollWidth>c.clientWidth+1).map(c=>c.textContent.trim());
  const box=e=>{for(let p=e;p;p=p.parentElement)if(w.getComputedStyle(p).overflowX==="auto")return p;return null};
  const out=[...d.querySelectorAll("table")].filter(t=>t.getBoundingClientRect().right>w.innerWidth&&!box(t));
  return {broken,hidden,outside:out.length,width:w.innerWidth,sideways:d.documentElement.scrollWidth-w.innerWidth}}
addEventListener("load",()=>{const all={};
  for(const f of document.querySelectorAll("iframe"))all[f.name]=measure(f);
  document.getElementById("found").textContent=JSON.stringify(all)});
"""


@pytest.fixture(scope="module")
def found(story_log) -> dict[str, Any]:
    """What Chromium measured of each page at each width."""
    browser = shutil.which("chromium")
    if browser is None:
        reason = "chromium is missing: scripts/install-system-packages.sh installs it"
        assert os.environ.get("CI") != "true", reason
        pytest.skip(reason)
    return _measured(browser, _pages(story_log))


def _pages(story_log) -> dict[str, str]:
    records, until_ms = story_log
    last = next(r for r in reversed(records) if isinstance(r.event, ev.JobFinished))
    long = replace(last, event=replace(last.event, reason=f"the program said {LONG_WORD}"))
    week = trace(*(job(i * 1800, 3000 + 700 * (i % 5), 1 + i % 4) for i in range(40)))
    names = ("fifo+none", "shortest_predicted+none+true", "least_attained+easy")
    results = compare(lambda _: week, [variant(name, config()) for name in names], Physics(), seeds=2, processes=1)
    made = (
        render(build([long if r is last else r for r in records], until_ms)),
        simulation_page(week, results),
        invoice_page(month(40), "en"),
        invoice_page(month(40), "zh"),
    )
    return dict(zip(PAGES, made, strict=True))


def _measured(browser: str, pages: dict[str, str]) -> dict[str, Any]:
    frames = "".join(
        f'<iframe name="{name}-{width}" style="width:{width}px;height:800px" srcdoc="{html.escape(text)}"></iframe>'
        for name, text in pages.items()
        for width in WIDTHS
    )
    style = "iframe{border:0;display:block}"
    text = f'<!doctype html><style>{style}</style><script>{MEASURE}</script><pre id="found"></pre>{frames}'
    options = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars")
    with TemporaryDirectory() as folder:
        path = Path(folder, "pages.html")
        path.write_text(text, encoding="utf-8")
        command = [browser, *options, "--dump-dom", f"--user-data-dir={folder}/profile", str(path)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    measured = re.search(r'<pre id="found">(.+?)</pre>', done.stdout, re.DOTALL)
    assert measured, done.stderr[-2_000:]
    return json.loads(html.unescape(measured[1]))


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("page", PAGES)
def test_pages_fit_any_width(found, page, width):
    measured = found[f"{page}-{width}"]
    assert measured == {"broken": [], "hidden": [], "outside": 0, "width": width, "sideways": 0}
