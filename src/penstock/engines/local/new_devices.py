"""Devices that appear on this machine while the server runs: its node offers them, and no job is disturbed.

The node's agent says that its machine has devices which it does not offer; of a vendor that had none here, its driver's
files say so. What is then offered is what the server itself lists: an agent's claim is bounded by that.
"""

import asyncio
import logging
from collections.abc import Callable

from msgspec.structs import replace

from penstock.core.model.ids import NodeName
from penstock.core.model.resources import Discovery
from penstock.devices.inventory import in_order
from penstock.engines.local.admission import Admission
from penstock.engines.local.agents import LocalAgents

log = logging.getLogger(__name__)

CHECK_S = 5.0
PAUSE_FIRST_S, PAUSE_MOST_S = 10.0, 600.0
"""Between two lists of the devices: longer each time that there was nothing new, for a list may take many seconds."""


class NewDevices:
    """Looks for new devices of the node that offers this machine's own.

    Args:
        said: how many devices of its machine a node says that it does not offer.
        present: vendors whose devices, or driver, may be here; cheap.
        discover: lists all devices of this machine.
        clock: seconds that never go back.
    """

    def __init__(
        self,
        agents: LocalAgents,
        admission: Admission,
        said: Callable[[NodeName], int],
        present: Callable[[], frozenset[str]],
        discover: Callable[[], Discovery],
        clock: Callable[[], float],
    ) -> None:
        self._agents, self._admission, self._said = agents, admission, said
        self._present, self._discover, self._clock = present, discover, clock
        self._again_s, self._pause_s = 0.0, PAUSE_FIRST_S

    async def keep(self) -> None:
        """Look for new devices until cancelled."""
        while self._agents.machine is not None:
            await asyncio.sleep(CHECK_S)
            await self.look()

    async def look(self) -> bool:
        """List the devices where there may be new ones and it is time; return whether any were offered."""
        spec = self._agents.machine
        if spec is None or self._clock() < self._again_s:
            return False
        vendors = {device.vendor for device in spec.devices}
        if not self._said(spec.name) and await asyncio.to_thread(self._present) <= vendors:
            return False
        found = await asyncio.to_thread(self._discover)
        devices = in_order(spec.devices, found.devices)
        new = len(devices) - len(spec.devices)
        self._pause_s = PAUSE_FIRST_S if new else min(PAUSE_MOST_S, 2 * self._pause_s)
        self._again_s = self._clock() + self._pause_s
        if not new:
            return False
        # What is known of a device stays: faults of it are reported by the agent, and so is their end.
        whole = replace(spec, devices=(*spec.devices, *devices[len(spec.devices) :]))
        log.info("new devices are offered", extra={"node": spec.name, "count": new, "note": found.note})
        self._admission.declare(whole)
        self._agents.offer(whole)
        return True
