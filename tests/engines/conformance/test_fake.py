"""The engine in virtual time keeps the contract of engines."""

from penstock.testing.builders import node
from penstock.testing.conformance import EngineConformance, ProgramName, SuiteServer
from penstock.testing.engine import Behaviour, FakeEngine


class Virtual:
    """Its time passes only by `pass_time`."""

    def __init__(self, server: SuiteServer) -> None:
        self.engine = FakeEngine(node("n1"))
        self.engine.start(server)

    def pass_time(self, ms: int) -> None:
        self.engine.advance(ms)

    def close(self) -> None:
        self.engine.stop()


class TestFakeEngine(EngineConformance):
    def bench(self, server: SuiteServer) -> Virtual:
        return Virtual(server)

    def command(self, program: ProgramName) -> tuple[str, ...]:
        return Behaviour(6_000, heeds_stop=False).command() if program == "ignores stop" else super().command(program)
