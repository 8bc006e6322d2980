"""Draws the pictures of the web pages for the documents: a small cluster of the tests, in a real browser."""

from pathlib import Path

from penstock.testing.server import InProcessServer
from tests.web.browsing import Viewer, chromium
from tests.web.world import Reports, declared, filled

OUT = Path("docs/images/ui")
PICTURES = {
    "overview": "/", "jobs": "/jobs?state=waiting", "job": "/jobs/65", "metrics": "/jobs/1?tab=metrics",
    "nodes": "/nodes?node=r1-n0", "queues": "/queues",
    "timeline": "/timeline?range=6h",
}  # fmt: skip
SIZE = {"width": 1200, "height": 760}


def main() -> None:
    OUT.mkdir(parents=True, exist_ok=True)
    with InProcessServer(declared(), outputs=Reports()) as server, chromium() as browser:
        viewer = Viewer(browser, server, filled(server)["admin"])
        viewer.page.set_viewport_size(SIZE)
        viewer.sign_in()
        for name, page in PICTURES.items():
            viewer.open(page)
            viewer.page.wait_for_timeout(2_000)
            viewer.page.screenshot(path=OUT / f"{name}.png")
        viewer.close()


if __name__ == "__main__":
    main()
