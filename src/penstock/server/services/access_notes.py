"""Has the access records of the server written to the log, while it leads and when it ends."""

import contextlib

from penstock.control import messages as msg
from penstock.control.inbox import InboxFull
from penstock.server.backend import Backend
from penstock.server.http.responses import ApiError
from penstock.server.services.periodic import repeat

LOOK_EVERY_S = 5.0


class AccessKeeper:
    """One for each server that leads."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def keep(self) -> None:
        """Run until cancelled."""
        await repeat(self.look, "who was turned away", LOOK_EVERY_S)

    def say_last(self) -> None:
        """Ask for all access records to be written: an ending server answers pending requests first."""
        service = self._backend.service
        last = self._backend.access.due(all_kinds=True) if service.controller.leads else ()
        if last:
            with contextlib.suppress(InboxFull):
                service.ask(msg.NoteAccess(last))

    async def look(self) -> None:
        """Have everything written that is due. Raises: ApiError when it cannot be; it is tried again then."""
        events = self._backend.access.due()
        if not events:
            return
        try:
            await self._backend.ask(msg.NoteAccess(events))
        except ApiError:
            self._backend.access.not_written(events)
            raise
