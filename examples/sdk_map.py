"""A search over many settings: in order by `map`, as they come by an executor, and commands waited for together.

penstock up
python examples/sdk_map.py
"""

from concurrent.futures import as_completed

from penstock.client import Client, PenstockExecutor


def loss(rate: float, width: int) -> float:
    """Return the loss of a training with these settings; a formula stands for it here."""
    return (rate - 0.1) ** 2 + 1 / width


def main() -> None:
    rates = [0.01, 0.03, 0.1, 0.3]
    with Client.connect() as client:
        losses = list(client.map(loss, rates, [64] * 4, chunk_size=2, cpus=1, queue="default"))
        best = min(range(len(rates)), key=losses.__getitem__)
        print(f"best rate: {rates[best]} (loss {losses[best]:.4f})")

        with PenstockExecutor(client, cpus=1) as executor:
            futures = {executor.submit(loss, rates[best], width=width): width for width in (32, 128)}
            found = {futures[future]: future.result() for future in as_completed(futures)}
        print(f"best width: {min(found, key=found.__getitem__)}")

        jobs = client.submit("echo member $PENSTOCK_ARRAY_INDEX", array=3, cpus=1)
        print(f"{len(jobs)} commands: {', '.join(jobs.wait(timeout=120))}")


if __name__ == "__main__":
    main()
