"""A service that is slow to start, shared by all tests of a session that ask for it."""

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar


class Service(Protocol):
    def start(self) -> object: ...

    def remove(self) -> None: ...


S = TypeVar("S", bound=Service)


class SharedService(Generic[S]):
    """Starts the service when it is first asked for."""

    def __init__(self, make: Callable[[], S]) -> None:
        self._make = make
        self._made: S | None = None

    def get(self) -> S:
        """Return the one service of this session."""
        if self._made is None:
            self._made = self._make()
            try:
                self._made.start()
            except BaseException:
                self.end()
                raise
        return self._made

    def end(self) -> None:
        """End it, where it was started."""
        made, self._made = self._made, None
        if made is not None:
            made.remove()
