"""The engine: a thread that keeps a driver alive, and lets follow what the driver sees. Ray is not loaded here."""

import contextlib
import logging
import os
import secrets
import selectors
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from threading import Event
from typing import assert_never

import msgspec

from penstock import starts
from penstock.core.model.errors import PenstockError
from penstock.engines.ray.deciding import View, bundles, decide
from penstock.engines.ray.driver_options import DriverOptions
from penstock.engines.ray.records import (
    Action,
    Adopt,
    Amounts,
    Ask,
    CapacityRequest,
    Forget,
    Going,
    Hold,
    Join,
    Open,
    Release,
    Said,
    Seen,
    StartAgent,
    StopAgent,
    Trouble,
)
from penstock.engines.ray.server import RayServer
from penstock.privatefiles import make_folder, open_own, write_whole

log = logging.getLogger(__name__)

SILENT_S = 30.0
"""A driver that says nothing for so long is ended: a call of Ray's hangs."""
PAUSES_S = (1.0, 2.0, 5.0, 10.0)
"""Before a driver is started again; the last one from then on."""
JOIN_S = 120.0
"""For an agent that is being started to be seen; then it is started again."""
WISH_EVERY_S = 5.0
LOG_MAX_BYTES = 2**24
OPTIONS = "driver.json"
_decoder: msgspec.json.Decoder[Said] = msgspec.json.Decoder(Said)


def access(options: DriverOptions) -> dict[str, str]:
    """Return the variables that say how to be let into the cluster; the mode always, for Ray guesses where it is unset.

    Raises: OSError.
    """
    if not options.address:
        return {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": _own_token(Path(options.local))}
    if mode := os.environ.get("RAY_AUTH_MODE"):
        return {"RAY_AUTH_MODE": mode}
    given = any(os.environ.get(name) for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"))
    known = given or (Path.home() / ".ray" / "auth_token").exists()
    return {"RAY_AUTH_MODE": "token" if known else "disabled"}


def _own_token(folder: Path) -> str:
    """Return the token of the local cluster, which is made once."""
    path = folder / "token"
    with contextlib.suppress(FileNotFoundError):
        return path.read_text(encoding="ascii").strip()
    make_folder(folder)
    token = secrets.token_hex(32)
    write_whole(path, token)
    return token


class RayEngine:
    """Makes nodes of a Ray cluster.

    Args:
        share_milli: of each Ray node, what may be held (thousandths).
        idle_release_s: idle nodes are given back after it; 0: never.
        folder: the engine's own, of the server's data folder.
    """

    def __init__(
        self, server: RayServer, options: DriverOptions, folder: Path, *, share_milli: int, idle_release_s: float
    ) -> None:
        self._server, self._options, self._folder = server, options, folder
        self._share_milli, self._idle_release_s = share_milli, idle_release_s
        self._driver: subprocess.Popen[bytes] | None = None
        self._places = self._kept_places()
        self._absent: dict[str, float] = {}
        self._begun: dict[str, float] = {}
        """Ray nodes whose agents are being started, and since when."""
        self._released: set[str] = set()
        self._wished: tuple[Amounts, ...] | None = None
        """None: nothing was asked for by this driver, and a former one may have."""
        self._wish_due_s = 0.0
        self.trouble = "not connected to Ray yet"
        """Why nothing is seen of the cluster; '' while it is."""

    def run(self, ending: Event) -> None:
        """Follow the cluster until `ending` is set. Nodes and their jobs live on."""
        tries = 0
        while not ending.is_set():
            begun_s = time.monotonic()
            try:
                self._follow(ending)
            except OSError as error:
                self.trouble = str(error)
            finally:
                self._end_driver()
            tries = 0 if time.monotonic() - begun_s > SILENT_S else tries + 1
            if not ending.is_set():
                log.warning("not connected to Ray", extra={"problem": self.trouble})
                ending.wait(PAUSES_S[min(tries, len(PAUSES_S) - 1)])

    def _follow(self, ending: Event) -> None:
        """Start a driver, and let follow what it says until it ends. Raises: OSError."""
        driver = self._driver = self._started()
        assert driver.stdout is not None, "it is a pipe"
        self._wished, said_s, buffer = None, time.monotonic(), b""
        with selectors.DefaultSelector() as selector:
            selector.register(driver.stdout, selectors.EVENT_READ)
            while not ending.is_set():
                if time.monotonic() - said_s > SILENT_S:
                    self.trouble = f"Ray has not answered for {SILENT_S:.0f} s"
                    return
                if not selector.select(0.2):
                    continue
                data = os.read(driver.stdout.fileno(), 1 << 20)
                if not data:
                    self.trouble = (
                        self.trouble or f"the process that talks to Ray has ended: {self._folder / 'driver.log'}"
                    )
                    return
                *lines, buffer = (buffer + data).split(b"\n")
                for line in lines:
                    said_s = time.monotonic()
                    self._on_said(_decoder.decode(line))

    def _started(self) -> "subprocess.Popen[bytes]":
        path = self._folder / "driver.log"
        with contextlib.suppress(FileNotFoundError):
            if path.stat().st_size > LOG_MAX_BYTES:
                path.unlink()
        words = msgspec.json.encode(self._options).decode()
        write_whole(self._folder / OPTIONS, words, synced=False)  # for who ends it all
        with os.fdopen(open_own(path, os.O_WRONLY | os.O_APPEND), "ab") as output:
            return subprocess.Popen(  # noqa: S603 - this program itself
                starts.python("penstock.engines.ray.driver", words),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                start_new_session=True,
                cwd=starts.HOME,
                env=starts.environment() | access(self._options),
            )

    def _end_driver(self) -> None:
        driver, self._driver = self._driver, None
        if driver is None:
            return
        with contextlib.suppress(ProcessLookupError):
            driver.kill()
        for end in (driver.stdin, driver.stdout):
            with contextlib.suppress(OSError):
                if end is not None:
                    end.close()
        driver.wait()

    def _ask(self, ask: Ask) -> None:
        driver = self._driver
        if driver is not None and driver.stdin is not None:
            driver.stdin.write(msgspec.json.encode(ask) + b"\n")
            driver.stdin.flush()

    # What follows from what it says.

    def _on_said(self, said: Said) -> None:
        if isinstance(said, Trouble):
            self.trouble = said.text
            return
        if self.trouble:
            log.info("connected to Ray", extra={"cluster": said.cluster, "nodes": len(said.nodes)})
            self.trouble = ""
        self._note_places(said)
        known = self._server.known()
        missing = self._server.missing() if said.now_s >= self._wish_due_s else None
        view = View(
            said,
            known,
            self._places,
            {name: said.now_s - since_s for name, since_s in self._absent.items()},
            self._share_milli,
            wanted=bool(self._wished or missing),
            idle_release_s=self._idle_release_s,
            released=frozenset(self._released),
            local_only=socket.gethostname() if self._server.local_only() else "",
        )
        for action in decide(view):
            try:
                self._do(action, said)
            except PenstockError as error:
                log.error("%s", error.message, extra={"action": type(action).__name__})
        if missing is not None:
            self._wish_due_s = said.now_s + WISH_EVERY_S
            self._wish(missing, said)

    def _note_places(self, seen: Seen) -> None:
        """Note which Ray node each agent is of, since when a node's Ray node is not there, and what has been begun."""
        before = dict(self._places)
        alive = {node.id for node in seen.nodes if node.alive}
        for node in seen.nodes:
            if node.holder is None or node.holder.state == "asked":
                continue
            own = [agent for agent in node.holder.agents if agent.node == node.id]
            self._places.update({agent.name: node.id for agent in own})
            if any(agent.lives for agent in own) or node.holder.state == "failed":
                self._begun.pop(node.id, None)
        for name, place in self._places.items():
            if place in alive:
                self._absent.pop(name, None)
            else:
                self._absent.setdefault(name, seen.now_s)
        self._released &= alive
        if self._places != before:
            self._keep_places()

    def _do(self, action: Action, seen: Seen) -> None:
        match action:
            case Going():
                self._server.close(action.name, action.deadline_ms, action.reason)
            case Open():
                self._server.open(action.name)
            case Forget():
                self._server.forget(action.name)
                self._places.pop(action.name, None)
                self._absent.pop(action.name, None)
                self._keep_places()
            case Join() | Adopt():
                self._begin(action, seen)
            case Release():
                if any(node.id == action.node and node.holder and node.holder.state == "ready" for node in seen.nodes):
                    self._released.add(action.node)
                self._ask(action)
            case Hold() | StopAgent() | StartAgent() | CapacityRequest():
                self._ask(action)
            case _:
                assert_never(action)

    def _begin(self, action: Join | Adopt, seen: Seen) -> None:
        node = action.node
        if seen.now_s - self._begun.get(node.id, -JOIN_S) < JOIN_S:
            return
        self._begun[node.id] = seen.now_s
        self._places[action.name] = node.id
        self._keep_places()
        bundle = ""
        if isinstance(action, Join) and not (action.again and self._server.has_joined(action.name)):
            bundle = self._server.declare(action.name, node, action.amounts, len(action.devices))
        log.info("starting an agent", extra={"node": action.name, "ray_node": node.id, "host": node.host})
        self._ask(StartAgent(node.id, action.name, action.amounts, action.devices, bundle))

    def _wish(self, missing: Sequence[Amounts], seen: Seen) -> None:
        """Ask Ray's autoscaler for what is missing; nodes that were given back come first."""
        if missing and self._released:
            self._released.clear()
            return
        held = [node.holder.amounts for node in seen.nodes if node.alive and node.holder and node.holder.amounts.cpus]
        wished, mark = bundles(held, missing), self._folder / "wished"
        if wished != self._wished and (wished or mark.exists()):  # there is one request a cluster: others' are left
            log.info("asking Ray's autoscaler", extra={"bundles": len(wished), "missing": len(missing)})
            write_whole(mark, b"", synced=False)
            self._ask(CapacityRequest(wished))
        if not wished:
            mark.unlink(missing_ok=True)
        self._wished = wished

    def _kept_places(self) -> dict[str, str]:
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            return msgspec.json.decode((self._folder / "places.json").read_bytes(), type=dict[str, str])
        return {}

    def _keep_places(self) -> None:
        write_whole(self._folder / "places.json", msgspec.json.encode(self._places), synced=False)
