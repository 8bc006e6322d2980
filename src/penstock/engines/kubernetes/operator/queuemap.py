"""The ConfigMap with queues, followed: what it declares, and what became of that as events on it.

It is watched alone, by its name, so that no other ConfigMap has to be readable.
"""

import asyncio
import logging
import random
from collections.abc import Iterable
from typing import Literal, NamedTuple

from penstock.engines.kubernetes.api.client import Client, Kind
from penstock.engines.kubernetes.api.errors import KubernetesError
from penstock.engines.kubernetes.api.reflector import Reflector
from penstock.engines.kubernetes.events import EVENTS, event
from penstock.engines.kubernetes.objects.answers import AnyObject
from penstock.engines.kubernetes.objects.common import Metadata
from penstock.engines.kubernetes.objects.configmaps import ConfigMap
from penstock.engines.kubernetes.operator.queuefile import KEY, QueueFile, read_queues
from penstock.engines.kubernetes.tasks import Tasks

log = logging.getLogger(__name__)

CONFIG_MAPS = Kind("", "v1", "configmaps")
AGAIN_S = 5.0
"""An event that could not be written is written again after this long."""

KEYS_SHOWN_MAX = 8


class Where(NamedTuple):
    """Which ConfigMap it is."""

    namespace: str
    name: str


class Said(NamedTuple):
    """What became of the file."""

    severity: Literal["Normal", "Warning"]
    reason: str
    text: str


class QueueMap:
    """Follows one ConfigMap. Everything runs on the engine's loop.

    Args:
        draw: spreads requests in time.
    """

    def __init__(self, client: Client, where: Where, draw: random.Random | None = None) -> None:
        self._client, self._where = client, where
        query = {"fieldSelector": f"metadata.name={where.name}"}
        self._maps: Reflector[ConfigMap] = Reflector(
            client, CONFIG_MAPS, ConfigMap, self, query=query, namespace=where.namespace, draw=draw
        )
        self._read: tuple[str, QueueFile, tuple[str, ...]] = ("", QueueFile(), ())
        """The version that was read last, what it declares, and what is wrong with it."""
        self._said: tuple[str, Said | None] = ("", None)
        """The version about which something was said last, and what."""
        self._tasks = Tasks()

    def changed(self, old: ConfigMap | None, new: ConfigMap) -> None:
        """It is looked at when the queues are."""

    def removed(self, old: ConfigMap) -> None:
        """It is looked at when the queues are."""

    def listed(self) -> None:
        """It is looked at when the queues are."""

    async def run(self) -> None:
        """Follow until cancelled."""
        try:
            await self._maps.run()
        finally:
            self._tasks.cancel()

    @property
    def version(self) -> str:
        """The version of what `current` returned last."""
        return self._read[0]

    def _found(self) -> ConfigMap | None:
        return self._maps.objects.get(self._where)

    async def current(self) -> QueueFile | None:
        """Return what the file declares; None where there is none, or a wrong one. It is read beside the loop."""
        found = self._found()
        if found is None:
            self._read = "", QueueFile(), ()
            return None
        version = found.metadata.resource_version
        if version != self._read[0]:
            text = found.data.get(KEY)
            if text is None:
                known = ", ".join(sorted(found.data)[:KEYS_SHOWN_MAX]) or "none"
                self._read = version, QueueFile(), (f"the key {KEY} is missing; its keys: {known}",)
            else:
                self._read = version, *await asyncio.to_thread(read_queues, text)
        _, file, problems = self._read
        if problems:
            self.wrong(problems)
            return None
        return file

    # What became of it; each is said once for each version.

    def wrong(self, problems: Iterable[str]) -> None:
        self._say(Said("Warning", "InvalidQueues", f"nothing was changed: {'; '.join(problems)}"))

    def overruled(self) -> None:
        text = f"{KEY} counts for nothing as long as there are Queue objects (kubectl get queues.penstock.dev)"
        self._say(Said("Warning", "QueueObjectsCount", text))

    def applied(self, file: QueueFile) -> None:
        names = ", ".join(one.metadata.name for one in file.queues)
        self._say(Said("Normal", "QueuesApplied", f"in the configuration: {names}"))

    def _say(self, said: Said) -> None:
        found = self._found()
        if found is None or self._said == (found.metadata.resource_version, said):
            return
        self._said = found.metadata.resource_version, said
        if said.severity == "Warning":
            log.warning("queues of a ConfigMap do not count", extra={"config_map": self._where, "problem": said.text})
        self._tasks.begin(self._event(found.metadata, said))

    async def _event(self, about: Metadata, said: Said) -> None:
        severity, reason, text = said
        body = event(CONFIG_MAPS, "ConfigMap", about, reason, text, action="Configuring", severity=severity)
        try:
            await self._client.write("POST", EVENTS.path(about.namespace), body, AnyObject)
        except KubernetesError as error:
            log.info("an event could not be written", extra={"config_map": self._where, "problem": error.message})
            await asyncio.sleep(AGAIN_S)
            if self._said == (about.resource_version, said):
                self._said = "", None
