"""Devices that do not exist, as a cluster file declares them: so that pools of any size can be tried anywhere."""

from penstock.core.model.resources import Device, DeviceLink, Isolation


def simulated(
    count: int,
    model: str,
    memory_bytes: int,
    *,
    mig: bool = False,
    mig_mode: bool = False,
    links: tuple[tuple[int, ...], ...] | None = None,
    isolation: Isolation = "cooperative",
    power_limit_mw: int = 0,
) -> tuple[Device, ...]:
    """Return `count` devices that do not exist, four to a NUMA node.

    Args:
        mig: whether they may be cut into hardware partitions.
        mig_mode: whether MIG mode is on, so that they give out such partitions alone.
        isolation: the strongest level that fractions of them reach.
        power_limit_mw: the most that each draws (mW); 0: unknown.
        links: groups of indexes that NVLink joins, each with each; None joins them in pairs.
    """
    groups = links if links is not None else tuple((i, i + 1) for i in range(0, count - 1, 2))
    peers = {index: [peer for peer in group if peer != index] for group in groups for index in group}
    return tuple(
        Device(
            index=index,
            vendor="simulated",
            model=model,
            memory_bytes=memory_bytes,
            capability=(9, 0),
            numa_node=index // 4,
            links=tuple(DeviceLink(peer, "nvlink") for peer in peers.get(index, ())),
            uuid=f"SIM-{index}",
            simulated=True,
            mig=mig,
            mig_mode=mig_mode,
            isolation=isolation,
            power_limit_mw=power_limit_mw,
        )
        for index in range(count)
    )
