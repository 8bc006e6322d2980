"""The promise about closed devices, recounted from nodes and jobs; `invariants.py` lists it with the others."""

from collections.abc import Iterable

from penstock.core.state.state import State


def closed_devices_are_kept_back(state: State) -> Iterable[str]:
    """A closed device is not healthy, has one closure, and no attempt was given it since it was closed."""
    for name, node in state.nodes.items():
        indexes = [one.index for one in node.devices_closed]
        if indexes != sorted(set(indexes)):
            yield f"closures of devices of {name} are of {indexes}"
        for one in node.devices_closed:
            if not 0 <= one.index < len(node.spec.devices):
                yield f"device {one.index} of {name} is closed, and there is none"
                continue
            device = node.spec.devices[one.index]
            if device.healthy or device.uuid != one.uuid:
                yield f"device {device} of {name} is given out, or is another than was closed: {one}"
            load = state.indexes.loads.get(name)
            for job_id in load.devices.get(one.index, ()) if load is not None else ():
                attempt = state.jobs[job_id].attempt
                if attempt is not None and not attempt.scheduler and attempt.allocated_ms > one.closed_ms:
                    yield f"job {job_id} was given device {one.index} of {name}, which had been closed before"
    named = {name for name, node in state.nodes.items() if node.devices_closed}
    if named != state.indexes.with_closed:
        yield f"nodes with closed devices {sorted(state.indexes.with_closed)} differ from {sorted(named)}"
