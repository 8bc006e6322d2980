"""`penstock ui` and `penstock open`: the web pages, opened in a browser that is signed in by a link that works once."""

import os
import sys
import webbrowser
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.options import JsonOption
from penstock.cli.output import print_json, say
from penstock.cli.place import client_of, data_folder, remote, url
from penstock.core.model.errors import PenstockError

if TYPE_CHECKING:
    from penstock.client import Client

BrowserOption = Annotated[bool, typer.Option("--browser/--no-browser", help="Open a browser, or only print the link.")]


def ui(
    page: Annotated[str, typer.Argument(help="Page, such as /jobs or /queues.")] = "/",
    browser: BrowserOption = True,
    json: JsonOption = False,
) -> None:
    """Open the web pages of the server, signed in."""
    _show(page if page.startswith("/") else f"/{page}", browser=browser, json=json)


def open_(
    job: Annotated[int, typer.Argument(help="Number of the job.", min=1)],
    browser: BrowserOption = True,
    json: JsonOption = False,
) -> None:
    """Open the web page of a job, signed in."""
    client_of().job(job)  # a wrong number is said here, not by a page
    _show(f"/jobs/{job}", browser=browser, json=json)


def _show(page: str, *, browser: bool, json: bool) -> None:
    client = client_of()
    link = login_address(address(), client, page)
    if json:
        print_json({"url": link})
        return
    opened = browser and _has_display() and webbrowser.open(link)
    say(f"{'opened ' if opened else ''}{link}")
    say("The link works once, for two minutes.", err=True)


def login_address(base: str, client: "Client", page: str = "/") -> str:
    """Return the address of a page that signs a browser in as the client's user. The code is never sent in a URL."""
    return f"{base.rstrip('/')}/login#{client.login_link(page).code}"


def address() -> str:
    """Return the address of the server that commands talk to. Raises: PenstockError when none runs."""
    if remote():
        return url().split(",")[0].strip()
    from penstock.client.endpoints import running_on

    announced = running_on(data_folder().root)
    if not announced:
        raise PenstockError("no server runs", hint="start one: penstock up")
    return address_in(announced[0])


def address_in(info: Mapping[str, Any]) -> str:
    """Return the address that a server announces."""
    host = f"[{info['host']}]" if ":" in info["host"] else info["host"]
    return f"{'https' if info.get('tls') else 'http'}://{host}:{info['port']}"


def _has_display() -> bool:
    """Return whether a browser has somewhere to show a page: one in the terminal would take it over."""
    return sys.platform == "darwin" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
