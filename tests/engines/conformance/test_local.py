"""The local engine keeps the contract of engines: real agents over TLS, real processes."""

import tempfile
import time
from pathlib import Path

from penstock.testing.conformance import EngineConformance, SuiteServer
from tests.engines.agent import fakeserver


class Real:
    """A node with its agent, in a folder of its own. Its time is real time."""

    def __init__(self, server: SuiteServer) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self._rig = fakeserver.FakeServer(Path(self._folder.name), events=server)
        self.engine = self._rig.engine
        self._rig.agent()

    def pass_time(self, ms: int) -> None:
        time.sleep(ms / 1000)

    def close(self) -> None:
        self._rig.close()
        self._folder.cleanup()


class TestLocalEngine(EngineConformance):
    def bench(self, server: SuiteServer) -> Real:
        return Real(server)
