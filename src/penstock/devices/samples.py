"""What the process that watches devices tells the agent, a line each. Agents load this, and no provider."""

from typing import Literal

import msgspec

from penstock.devices.reading import Reading

LINE_MAX = 4 * 2**20


class DeviceSample(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one provider found at one moment."""

    vendor: str
    kind: Literal["inventory", "sample", "silent"]
    """`silent`: the provider hangs or has ended; findings of the reading say so, its devices may be well."""
    reading: Reading = Reading()
    at_ms: int = 0
    """When it was read: milliseconds since the machine was started."""


def encoded(sample: DeviceSample) -> bytes:
    """Return a sample as one line."""
    return msgspec.json.encode(sample) + b"\n"


decode = msgspec.json.Decoder(DeviceSample).decode
