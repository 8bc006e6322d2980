"""TLS settings of a listener that may change while it listens."""

import ssl
from collections.abc import Callable
from typing import Any


class Live:
    """TLS settings that may change at any time: new connections get the newest.

    A listener keeps the context that it was made with. So that context hands each connection over to the present one,
    by the callback for server names (SNI): that also drops an authority, which no context can forget.

    Args:
        build: makes the settings from the present files.
    Raises: OSError (ssl.SSLError) when the files are bad.
    """

    def __init__(self, build: Callable[[], ssl.SSLContext]) -> None:
        self._build = build
        self._present = build()
        self.context = build()
        """For the listener."""
        self.context.sni_callback = self._hand_over

    def renew(self) -> None:
        """Take up the files as they are now. Raises: OSError (ssl.SSLError) and changes nothing when they are bad."""
        self._present = self._build()

    def _hand_over(self, connection: Any, _name: str | None, _first: ssl.SSLContext) -> None:
        connection.context = self._present
