"""A Ray program as people write it: nothing in it knows of Penstock but where to save.

It says on how many nodes its tasks run, then counts on an actor of another node, and saves when it is asked to leave.
"""

import os
import signal
import sys
import time
from pathlib import Path

import ray


@ray.remote(num_cpus=1)
class Counter:
    def __init__(self, value):
        self.value = value

    def step(self):
        self.value += 1
        return self.value


@ray.remote(num_cpus=1)
def where(_):
    time.sleep(0.05)
    return ray.get_runtime_context().get_node_id()


def main(steps):
    saved = Path(os.environ["PENSTOCK_CHECKPOINT_DIR"]) / "step"
    asked = []
    ray.init(log_to_driver=False)
    signal.signal(signal.SIGTERM, lambda *_: asked.append(True))  # after `init`, which sets a handler of its own
    nodes = [node["NodeID"] for node in ray.nodes() if node["Alive"]]
    print("nodes", len(nodes), "cpus", int(ray.cluster_resources()["CPU"]), flush=True)
    strategy = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
    reached = ray.get([where.options(scheduling_strategy=strategy(one, soft=False)).remote(0) for one in nodes])
    print("reached", len(set(reached)), flush=True)
    begin = int(saved.read_text()) if saved.exists() else 0
    counter = Counter.remote(begin)
    for _ in range(begin, steps):
        value = ray.get(counter.step.remote())
        if asked:
            saved.write_text(str(value))
            print("saved", value, flush=True)
            return 0
        time.sleep(0.01)
    print("counted", steps, "from", begin, flush=True)
    return 3 if steps == 3 else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
