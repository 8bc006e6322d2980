"""A real identity provider for tests: `oidc-provider` of npm, certified by the OpenID Foundation, on loopback."""

import contextlib
import json
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.web.browsing import needed

SCRIPT = Path(__file__).with_name("provider.mjs")
PACKAGE = Path(__file__).parents[2] / "ui/node_modules/oidc-provider"
SECRET = "a secret of the client, with : and %"


@contextlib.contextmanager
def provider(groups: Mapping[str, list[str]]) -> Iterator[str]:
    """Give the issuer of a provider whose users have these groups; anybody can sign in there, under any name."""
    node = shutil.which("node")
    if node is None or not PACKAGE.exists():
        needed("node, and oidc-provider (make ui/node_modules)")
    words = [node, str(SCRIPT), json.dumps({"secret": SECRET, "groups": groups})]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()
