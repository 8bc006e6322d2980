"""Asks for nodes when jobs wait for capacity that is not there: by a command or over HTTP.

The provider gets one JSON document (`penstock.core.status.scaleout.request_of`) on standard input, or as the body of a
POST. How it gets nodes is up to it; they register like any other. It is asked again only after a pause, for machines
take minutes to come.
"""

import asyncio
import contextlib
import http.client
import json
import logging
import os
import signal
import subprocess
import urllib.error
import urllib.request
from typing import Any

from penstock import starts
from penstock.control import messages as msg
from penstock.core.model.cluster import Settings
from penstock.core.status.scaleout import Missing, missing, request_of
from penstock.server.backend import Backend
from penstock.server.services.periodic import repeat

log = logging.getLogger(__name__)

LOOK_EVERY_S = 1.0
HOOK_WAIT_S = 60.0
TEXT_MAX = 500


class Autoscaler:
    """Looks every second whether a hook is declared and something is missing."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._asked_ms: int | None = None
        self._last: tuple[Missing, ...] = ()

    async def keep(self) -> None:
        """Run until cancelled."""
        await repeat(self.look, "missing capacity", LOOK_EVERY_S)

    async def look(self) -> None:
        """Ask the provider if something is missing and it was not asked lately."""
        settings = self._backend.state.config.settings
        if not settings.scale_command and not settings.scale_url:
            return
        clock = self._backend.clock
        now_ms = clock.monotonic_ms()
        if self._asked_ms is not None and now_ms - self._asked_ms < settings.scale_every_ms:
            return
        found = missing(
            dict(self._backend.state.jobs),
            self._backend.service.controller.last_plan,
            clock.unix_ms(),
            settings.scale_after_ms,
        )
        if not found:
            return
        self._asked_ms = now_ms
        ok, text = await ask(settings, request_of(found))
        log.log(logging.INFO if ok else logging.WARNING, "asked for capacity", extra={"ok": ok, "answer": text})
        await self._backend.ask(msg.NoteCapacity(tuple(found), ok, text))


async def ask(settings: Settings, request: dict[str, Any]) -> tuple[bool, str]:
    """Ask the provider for capacity; return whether it accepted, and its answer."""
    body = json.dumps(request).encode()
    if settings.scale_command:
        return await asyncio.to_thread(_run, settings.scale_command, body)
    return await asyncio.to_thread(_post, settings.scale_url, body)


def _run(command: str, body: bytes) -> tuple[bool, str]:
    process = subprocess.Popen(  # noqa: S603 - the operator's own command
        # The server ignores the exits of its children (its agents outlive it): so the shell prints its status.
        ["/bin/sh", "-c", '/bin/sh -c "$1"; printf "\\n%s" "$?"', "penstock-scale", command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        cwd=starts.HOME,
    )
    try:
        told, _ = process.communicate(body, HOOK_WAIT_S)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return False, f"the command did not end within {HOOK_WAIT_S:.0f} s"
    text, _, status = told.decode("utf-8", errors="replace").rpartition("\n")
    return status == "0", text.strip()[-TEXT_MAX:] or f"exit {status}"


def _post(url: str, body: bytes) -> tuple[bool, str]:
    if not url.startswith(("http://", "https://")):
        return False, f"'{url}' is no address that can be asked: http or https"
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(url, data=body, headers=headers, method="POST")  # noqa: S310 - checked above
    try:
        with urllib.request.urlopen(request, timeout=HOOK_WAIT_S) as answer:  # noqa: S310
            return True, answer.read(TEXT_MAX).decode("utf-8", errors="replace").strip() or f"status {answer.status}"
    except urllib.error.HTTPError as error:
        with error:
            return False, f"status {error.code}: {error.read(TEXT_MAX).decode('utf-8', errors='replace').strip()}"
    except (OSError, ValueError, http.client.HTTPException) as error:
        return False, str(error)
