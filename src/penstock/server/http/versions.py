"""Versions of things that are edited: `If-Match` refuses a change of something that is no longer what the caller saw.

A version is the part of an ETag before its dot: what follows tells representations apart, such as another step reached.
"""

from hashlib import blake2b
from typing import Annotated, Any

from fastapi import Header
from starlette.responses import Response

from penstock.core.model.cluster import Node
from penstock.core.model.jobs import Job
from penstock.server.http.responses import ApiError

TAGS_MAX = 2_000
"""Characters of `If-Match`."""
IfMatch = Annotated[
    str,
    Header(max_length=TAGS_MAX, description="ETag of what the change was decided on: 412 if it has changed since"),
]


def with_version(answer: Response, version: str) -> Response:
    """Return an answer whose ETag begins with a version."""
    answer.headers["ETag"] = f'"{version}"'
    return answer


def check_version(given: str, version: str, what: str, now: Any = None) -> None:
    """Raise ApiError where `If-Match` names other versions than the present one.

    Args:
        now: what it is by now, for the answer.
    """
    tags = [one.strip().removeprefix("W/").strip('"').partition(".")[0] for one in given.split(",")]
    if not given or version in tags or "*" in tags:
        return
    raise ApiError(
        "precondition_failed",
        f"{what} has changed since",
        hint="look at what is now, and decide again; nothing was done",
        headers={"ETag": f'"{version}"'},
        now=now,
    )


def job_version(job: Job) -> str:
    """Return the version of a job: it changes with its state, its attempt, and what people do with it."""
    held = job.hold.since_ms if job.hold is not None else 0
    parts = (job.id, job.submit_seq, job.edited_seq, job.state, job.last_attempt, held, int(job.cancel_requested))
    return "-".join(map(str, parts))


def node_version(node: Node) -> str:
    """Return the version of a node: it changes when it is closed, opened, lost or comes back."""
    seen = (node.incarnation, node.state, node.draining, node.drain_reason, node.closed_ms, node.evict_at_ms)
    return blake2b(repr(seen).encode(), digest_size=9).hexdigest()
