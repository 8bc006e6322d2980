"""Pages of finished jobs: a bounded look back, and a cursor that leads on."""

import pytest

from penstock.core.model.access import Scope
from penstock.core.state.tokens import local_scope
from penstock.ports import FinishedJob
from penstock.server import listing
from penstock.server.listing import job_table, page_of
from penstock.server.tables import ListQuery
from penstock.server.views.reads import Page

TABLE = job_table(lambda job: "")


def ended(number, name, tenant="a"):
    return FinishedJob(number, name, tenant, "default", "ann", "succeeded", "", 1, 2, 3, 1, 0, 1, 1, 500)


class Past:
    """Reads of a cluster in which nothing lives."""

    def __init__(self, *jobs):
        self._jobs = sorted(jobs, key=lambda job: -job.id)

    def live_page(self, who, after, limit, *, tenant=None):
        return []

    def finished_jobs(self, who, limit, before=None):
        found = [job for job in self._jobs if before is None or job.id < before][:limit]
        return Page([job for job in found if who.sees(job.tenant)], found[-1].id if found else None)


@pytest.mark.parametrize("who", [local_scope("ann"), Scope("eve", tenants={"a": "viewer"})], ids=["all", "tenant"])
def test_a_search_looks_back_so_far_and_its_cursor_goes_on(monkeypatch, who):
    monkeypatch.setattr(listing, "FINISHED_BATCH", 2)
    monkeypatch.setattr(listing, "BATCHES_MAX", 2)
    monkeypatch.setattr(listing, "FINISHED_MAX", 4)
    reads = Past(*(ended(i, f"run-{i}") for i in range(1, 10)), ended(10, "run-1", "b"))
    found, pages, cursor = [], 0, ""
    while pages == 0 or cursor:
        query = ListQuery(5, cursor, "newest", (), "", {"search": "run-1"})
        page = page_of(TABLE, query, who, reads, finished=True)
        found, pages, cursor = found + [row.job.id for row in page.rows], pages + 1, page.cursor
    assert found == ([10, 1] if who.sees_all else [1])
    assert pages == (3 if who.sees_all else 6), "up to 4 or 2 jobs are looked at for each page"
