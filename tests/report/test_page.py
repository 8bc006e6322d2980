"""The page: safe whatever jobs are called, whole without a network, the same every time, and bounded."""

import re
from html.parser import HTMLParser

import pytest
from msgspec.structs import replace

from penstock.core.model import events as ev
from penstock.core.model.ids import AttemptNumber, JobId, Rank
from penstock.core.model.jobs import ExitInfo, ReplicaPlace
from penstock.report.run import build, render
from penstock.report.run.gantt import gantt
from penstock.report.run.timeline import BARS_MAX, lay_out
from penstock.report.text import duration, esc

VOID = {"meta", "link", "br", "img", "hr", "input"}
HOSTILE = (
    "<script>alert(1)</script>",
    "\"' onmouseover=alert(1) x='",
    "</style></title></svg><img src=x onerror=alert(1)>",
    "&lt;b&gt;",
    "\u202egnp.exe",
    "x" * 5_000,
)


class Tags(HTMLParser):
    """Checks that tags nest, and collects them."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def page(story_log):
    return render(build(*story_log))


def test_tags_nest_and_ids_are_unique(page):
    ids = [attributes["id"] for _, attributes in Tags(page).seen if "id" in attributes]
    assert len(ids) == len(set(ids)) > 22


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_stay_text(world, program, name):
    world.submit("innocent", program(work_ms=2_000), devices=4, priority="low", user=name)
    plain = Tags(render(build(_renamed(world, "innocent"), world.now_ms + 9)))
    hostile = Tags(render(build(_renamed(world, name), world.now_ms + 9)))
    assert [tag for tag, _ in hostile.seen] == [tag for tag, _ in plain.seen]
    assert not any(key.startswith("on") for _, attributes in hostile.seen for key in attributes)


def _renamed(world, name):
    """The world's log with every job called `name`, waiting or not."""
    world.cycle()

    def renamed(record):
        event = record.event
        if not isinstance(event, ev.JobSubmitted):
            return record
        return replace(record, event=replace(event, spec=replace(event.spec, name=name, tenant=name)))

    return [renamed(r) for r in world.records]


def test_marks_that_turn_text_around_are_not_let_through():
    assert esc("a\u202eb\x00c") == "a\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER}c"


def test_nothing_is_fetched_from_anywhere(page):
    assert "http://" not in page
    assert "https://" not in page
    assert not re.search(r"@import|url\((?!#)", page)
    for tag, attributes in Tags(page).seen:
        assert "src" not in attributes, tag
        assert (attributes.get("href") or "#").startswith(("#", "data:,")), tag


def test_the_same_log_gives_the_same_bytes(story_log, page):
    assert render(build(*story_log)) == page


def test_links_to_jobs_lead_somewhere(page):
    seen = Tags(page).seen
    ids = {attributes.get("id") for _, attributes in seen}
    links = {attributes["href"][1:] for tag, attributes in seen if tag == "a"}
    assert links
    assert links <= ids


def test_the_page_says_what_is_simulated(page):
    assert "simulated devices" in page
    assert "virtual nodes" in page


def test_the_demo_page_is_small(page):
    assert len(page.encode()) < 300_000


def test_the_story_names_victim_beneficiary_and_steps(page):
    assert "<b>pretrain-vit</b> made room for <b>urgent-detector</b>: gone 800 ms after the order" in page
    assert "at step 80, 47 steps lost" in page


def test_a_victim_is_marked_and_points_to_its_beneficiary(story_log):
    report = build(*story_log)
    drawn = gantt(report, lay_out(report))
    assert drawn.count('class="m-lost"') >= 1
    assert 'class="m-preempted"' in drawn
    assert drawn.count('class="arrow"') >= 1


def test_five_thousand_jobs_render_in_bounded_size(world):
    records = [*world.records, *_many_jobs(world, 5_000)]
    report = build(records, records[-1].time_ms)
    drawn = render(report)
    assert len(report.bars) == 5_000
    assert len(drawn.encode()) < 1_500_000
    assert f"{5_000 - BARS_MAX:,} allocations of 5,000 not drawn" in drawn
    assert "4,400 more jobs not shown" in drawn


def _many_jobs(world, count: int) -> list[ev.Record]:
    """Jobs of one device each, all submitted at once and run four at a time, as the log would tell of them."""
    first = world.submit("one", None, devices=1)
    base = world.records.pop().event
    events: list[tuple[int, ev.AnyEvent]] = []
    for index in range(count):
        events.append((0, replace(base, job_id=JobId(first + index))))
    for index in range(count):
        key, start_ms = (JobId(first + index), AttemptNumber(1)), 1_000 * (index // 4 + 1)
        place = ReplicaPlace("node-a", "node-a/1", (index % 4,))
        ended = ExitInfo(code=0)
        events += [(start_ms, ev.AttemptAllocated(*key, (place,))), (start_ms, ev.ReplicaStarted(*key, Rank(0)))]
        done = (ev.ReplicaExited(*key, Rank(0), ended), ev.AttemptEnded(*key, "succeeded"))
        events += [(start_ms + 900, event) for event in (*done, ev.JobFinished(key[0], "succeeded", exit=ended))]
    seq, now_ms = len(world.records), world.now_ms
    ordered = sorted(events, key=lambda e: e[0])
    return [ev.Record(seq + i, now_ms + after_ms, event) for i, (after_ms, event) in enumerate(ordered, 1)]


@pytest.mark.parametrize(
    ("ms", "shown"),
    [
        (0, "0 s"),
        (999, "999 ms"),
        (9_450, "9.4 s"),
        (65_000, "1 min 05 s"),
        (7_500_000, "2 h 05 min"),
        (10**9, "11 d 13 h"),
    ],
)
def test_durations_have_two_units_at_most(ms, shown):
    assert duration(ms) == shown
