"""Logs and images as the former version wrote them: each dependency on a job of an array by itself."""

from typing import Any

import msgspec


def former(found: Any, kind: Any) -> Any:
    """Return what was read as `kind` of the bytes that the former version wrote of `found`."""
    plain = msgspec.msgpack.decode(msgspec.msgpack.encode(found))
    live = {job["id"] for job in plain.get("jobs", ())} if isinstance(plain, dict) else set()
    _expand(plain, live)
    return msgspec.msgpack.decode(msgspec.msgpack.encode(plain), type=kind)


def _expand(plain: Any, live: set[int]) -> None:
    if isinstance(plain, list):
        for one in plain:
            _expand(one, live)
    if not isinstance(plain, dict):
        return
    for one in plain.values():
        _expand(one, live)
    after = plain.get("after")
    if isinstance(after, list):
        plain["after"] = [
            {"job_id": one["job_id"] + i, "kind": one["kind"]} for one in after for i in range(one.pop("count", 1))
        ]
    plain.pop("unmet_by_run", None)
    if "unmet" in plain:
        plain["unmet"] = sorted({one["job_id"] for one in plain["spec"]["after"]} & live)
