"""A function as a job: submitted, followed, its value and its exception brought back.

penstock up
python examples/sdk_functions.py
"""

from penstock.client import Client


def estimate_pi(points: int, seed: int) -> float:
    """Return an estimate of pi from random points in a square."""
    import random

    drawn = random.Random(seed)
    inside = sum(drawn.random() ** 2 + drawn.random() ** 2 < 1 for _ in range(points))
    print(f"{inside} of {points} points are inside")
    return 4 * inside / points


def main() -> None:
    with Client.connect() as client:
        job = client.submit(estimate_pi, 100_000, 7, name="pi", cpus=1, time_limit="10m")
        print(f"job {job.id}: {job.explain().text}")
        for line in job.logs(follow=True):
            print(f"  {line}")
        print(f"pi is about {job.result():.3f}")

        failed = client.submit(estimate_pi, 0, 7, cpus=1)
        try:
            failed.result()
        except ZeroDivisionError as error:
            print(f"job {failed.id} {failed.status}: {error}")


if __name__ == "__main__":
    main()
