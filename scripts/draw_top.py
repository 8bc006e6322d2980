"""Draws docs/images/top.svg: `penstock top` before a cluster in virtual time. `python scripts/draw_top.py`"""

import asyncio
import re
from pathlib import Path

from penstock.cli.top.app import TopApp
from penstock.cli.top.looks import ListWanted
from penstock.client import Client
from penstock.testing.builders import cluster_file
from penstock.testing.server import InProcessServer

PICTURE = Path(__file__).parents[1] / "docs" / "images" / "top.svg"
SIZE = (100, 22)
FAR = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)
"""Fonts that the picture would load from elsewhere; it has the reader's own."""
JOBS = (
    {"name": "pretrain-7b", "devices": 8, "replicas": 2, "time_limit": "40h"},
    {"name": "segment-scans", "devices": 4, "time_limit": "6h"},
    {"name": "reward-model", "devices": 2},
    {"name": "tune-lr", "devices": 2, "array": 12},
    {"name": "distill", "devices": 8, "priority": 650},
    {"name": "eval-nightly", "devices": 1, "priority": "low"},
    {"name": "ablation-long-context", "devices": 8, "replicas": 3},
)


async def drawn(server: InProcessServer) -> str:
    app = TopApp(
        lambda: Client.at(server.url, token=server.token, insecure=True),
        ListWanted("devices"),
        clock_ms=server.engine.clock.unix_ms,
        interval_s=60.0,
    )
    async with app.run_test(size=SIZE) as pilot:
        while app.looked < 1:
            await pilot.pause(0.01)
        await pilot.pause()
        return app.export_screenshot(title="penstock top devices")


def main() -> None:
    with InProcessServer(cluster_file(7, 8)) as server:
        for job in JOBS:
            server.submit({"command": "sleep 90000", **job})
            server.advance(240)
        server.client.drain("n6", reason="new disk")
        PICTURE.write_text(FAR.sub("", asyncio.run(drawn(server))), encoding="utf-8")


if __name__ == "__main__":
    main()
