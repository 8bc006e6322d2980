"""A message in the shapes that channels take: plain text, JSON, and the JSON that Slack and its like read."""

from typing import Any

import msgspec

from penstock.core.explain.notices import Notice
from penstock.core.model.quantities import format_time
from penstock.server.services.notifying.places import JobPlace, Target
from penstock.server.services.notifying.queues import Message, sums_text

SLACK_MAX = 3_000
_JSON = msgspec.json.Encoder()


def title_of(message: Message) -> str:
    """Return the line that stands for a whole message."""
    count = sum(message.counts.values())
    if count == 1:
        return message.notices[0].title
    if message.array_id is not None:
        return f"array {message.array_id} '{message.notices[0].job_name}': {sums_text(message.counts)}"
    return f"{count:,} events: {sums_text(message.counts)}"


def link_of(notice: Notice, server_url: str) -> str:
    """Return where a browser shows more, '' without an address."""
    if not server_url:
        return ""
    return f"{server_url}/jobs/{notice.job_id}" if notice.job_id is not None else f"{server_url}/"


def text_of(message: Message, target: Target, server_url: str) -> str:
    """Return a message as plain text."""
    count, parts = sum(message.counts.values()), []
    if count > 1:
        parts.append(f"{title_of(message)}.")
    for notice in message.notices:
        lines = [f"{_capital(notice.title)}."]
        lines += [notice.text] if notice.text else []
        lines.append(f"{format_time(notice.time_ms)}" + (f", tenant {notice.tenant}" if notice.tenant else ""))
        lines += [f"More: {notice.command}"] if notice.command else []
        lines += [link] if (link := link_of(notice, server_url)) else []
        parts.append("\n".join(lines))
    if (left := count - len(message.notices)) > 0:
        parts.append(f"{left:,} more are not listed here: penstock ps -a --mine")
    chosen = "as the job's file says" if isinstance(target, JobPlace) else f"notification '{target.name}'"
    parts.append(f"-- \nPenstock, {chosen} of {target.owner}: penstock notify list")
    return "\n\n".join(parts) + "\n"


def json_of(message: Message, target: Target, server_url: str) -> bytes:
    """Return a message as JSON."""
    counts = message.counts
    found: dict[str, Any] = {
        "id": message.id,
        "time": format_time(message.made_ms),
        "user": target.owner,
        "notification": target.name,
        "title": title_of(message),
        "counts": counts,
        "left_out": sum(counts.values()) - len(message.notices),
        "events": [_plain(notice, server_url) for notice in message.notices],
    }
    return _JSON.encode(found)


def _plain(notice: Notice, server_url: str) -> dict[str, Any]:
    found: dict[str, Any] = {
        "event": notice.event,
        "record": notice.seq,
        "time": format_time(notice.time_ms),
        "title": notice.title,
        "text": notice.text,
        "command": notice.command,
        "url": link_of(notice, server_url),
        "tenant": notice.tenant,
    }
    if notice.job_id is not None:
        found["job"] = {"id": notice.job_id, "name": notice.job_name, "array": notice.array_id}
    if notice.node:
        found["node"] = notice.node
    return found


def slack_of(message: Message, target: Target, server_url: str) -> bytes:
    """Return a message as Slack, Mattermost and others read it. A job's name can neither call people nor make links."""
    text = text_of(message, target, server_url)
    text = text if len(text) <= SLACK_MAX else text[:SLACK_MAX] + "\n..."
    escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _JSON.encode({"text": escaped, "mrkdwn": False, "unfurl_links": False})


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
