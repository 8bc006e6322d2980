"""Many jobs in one event loop: submitted at once, each told of as it ends, the slow one given up.

penstock up
python examples/sdk_async.py
"""

import asyncio

from penstock.client import AsyncClient


def word_count(text: str) -> int:
    return len(text.split())


async def main() -> None:
    texts = ["one", "one two", "one two three"]
    async with AsyncClient.connect() as client:
        jobs = await asyncio.gather(*(client.submit(word_count, text, cpus=1) for text in texts))
        slow = await client.submit("sleep 600", name="slow", cpus=1, grace="1s")
        async for job in client.as_completed(jobs, timeout=120):
            print(f"job {job.id}: {await job.result()} words")
        try:
            await slow.wait(timeout=0.1)
        except TimeoutError as error:
            print(error)
            await slow.cancel()
        print(f"slow: {await slow.wait(timeout=120)}")


if __name__ == "__main__":
    asyncio.run(main())
