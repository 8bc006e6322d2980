"""The program that makes this machine a node: `python -P -m penstock.joining BUNDLE --data FOLDER`.

Prints one line of JSON. Ends with 0; with 3 where the server has not taken the node in, with 2 for what cannot be.
"""

import argparse
import sys
from pathlib import Path
from typing import NoReturn

import msgspec

from penstock import starts
from penstock.core.model.errors import InvalidInput, PenstockError
from penstock.engines.agent.joined import BUNDLE_MAX_BYTES, JoinBundle, ServerAddress, decoded
from penstock.joining.node import Joined, JoinWish, NotJoined, join, prepare, wait_joined
from penstock.privatefiles import check

GUARDIAN = "penstock.engines.agent.guardian"


def main() -> None:
    given = _parser().parse_args()
    try:
        bundle = read_bundle(given.bundle) if given.bundle else None
        data, wish = starts.whole(given.data), wish_of(vars(given))
        if given.foreground:
            begin_here(bundle, data, wish)
        joined = join(bundle, data, wish)
        print(msgspec.json.encode(joined).decode(), flush=True)
        if given.wait is not None:
            joined_within(joined, given.wait)
    except PenstockError as error:
        print(
            f"penstock: {error.message}", *([f"  hint: {error.hint}"] if error.hint else []), sep="\n", file=sys.stderr
        )
        sys.exit(3 if isinstance(error, NotJoined) else 2)


def begin_here(bundle: JoinBundle | None, data: Path, wish: JoinWish) -> NoReturn:
    """Let this process go on as the node's guardian. Raises: as `prepare`."""
    folder, spec = prepare(bundle, data, wish)
    starts.become(GUARDIAN, str(folder.node(spec.name) / "agent.json"))


def joined_within(joined: Joined, limit_s: float) -> str:
    """Return the address of the server that has taken the node in. Raises: NotJoined."""
    from penstock.engines.processes.paths import DataFolder

    return wait_joined(DataFolder(Path(joined.data)), joined.node, limit_s)


def read_bundle(place: str) -> JoinBundle:
    """Return the bundle in a file, or on standard input (`-`). Raises: InvalidInput; NotPrivate."""
    if place == "-":
        return decoded(sys.stdin.buffer.read(BUNDLE_MAX_BYTES))
    path = starts.whole(place)
    try:
        check(path)
        with path.open("rb") as file:
            return decoded(file.read(BUNDLE_MAX_BYTES))
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read: {error.strerror}") from error


def wish_of(given: dict[str, object]) -> JoinWish:
    """Return what the options ask for. Raises: InvalidInput."""
    simulated, model = _simulated(str(given["simulated"] or ""))
    return JoinWish(
        cpus=given["cpus"],  # type: ignore[arg-type]
        memory=str(given["memory"] or ""),
        devices=_numbers(given["devices"]),
        simulated=simulated,
        simulated_model=model,
        address=str(given["address"] or ""),
        ports=_ports(str(given["ports"] or "")),
        shared=str(given["shared"] or ""),
        servers=tuple(ServerAddress.parsed(one) for one in str(given["servers"] or "").split(",") if one),
    )


def _numbers(text: object) -> tuple[int, ...] | None:
    if text is None:
        return None
    parts = [part.strip() for part in str(text).split(",") if part.strip()]
    if not all(part.isascii() and part.isdigit() for part in parts):
        raise InvalidInput(f"--devices is '{text}', expected numbers such as 0,2")
    return tuple(int(part) for part in parts)


def _simulated(text: str) -> tuple[int, str]:
    count, _, model = text.partition(":")
    if text and not (count.isascii() and count.isdigit() and int(count) <= 128):
        raise InvalidInput(f"--simulated is '{text}', expected a number of devices, such as 2 or 2:SIM-40G")
    return (int(count) if text else 0), model or JoinWish().simulated_model


def _ports(text: str) -> tuple[int, int] | None:
    if not text:
        return None
    first, _, last = text.partition("-")
    if not (first.isascii() and first.isdigit() and last.isascii() and last.isdigit()):
        raise InvalidInput(f"--ports is '{text}', expected FIRST-LAST")
    return int(first), int(last)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -P -m penstock.joining", description=main.__doc__)
    parser.add_argument("bundle", nargs="?", help="file with the join bundle; -: standard input; none: joined before")
    parser.add_argument("--data", required=True, help="folder of this node")
    parser.add_argument("--cpus", type=float)
    parser.add_argument("--memory")
    parser.add_argument("--devices")
    parser.add_argument("--simulated")
    parser.add_argument("--address")
    parser.add_argument("--ports")
    parser.add_argument("--shared")
    parser.add_argument("--servers")
    parser.add_argument("--wait", type=float)
    parser.add_argument("--foreground", action="store_true")
    return parser


if __name__ == "__main__":
    main()
