"""Versions of things that are edited: `If-Match` refuses a change of something that is no longer what the caller saw.

A version is the part of an ETag before its dot: what follows tells representations apart, such as another step reached.
"""

from typing import Annotated, Any

from fastapi import Header
from starlette.responses import Response

from penstock.core.lifecycle.versions import CHANGED
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


def versions_of(given: str) -> tuple[str, ...]:
    """Return the versions that `If-Match` names; none where any will do."""
    tags = [one.strip().removeprefix("W/").strip('"').partition(".")[0] for one in given.split(",")]
    return () if not given or "*" in tags else tuple(tags)


def check_version(given: str, version: str, what: str, now: Any = None) -> None:
    """Raise ApiError where `If-Match` names other versions than the present one.

    Args:
        now: what it is by now, for the answer.
    """
    wanted = versions_of(given)
    if wanted and version not in wanted:
        raise changed(version, what, now)


def changed(version: str, what: str, now: Any) -> ApiError:
    """Return the error for a change that was decided on another version."""
    hint = "look at what is now, and decide again; nothing was done"
    return ApiError(CHANGED, f"{what} has changed since", hint=hint, headers={"ETag": f'"{version}"'}, now=now)
