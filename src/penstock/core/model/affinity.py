"""Which replicas may stand near each other: affinity, anti-affinity and spread over domains of nodes.

The meanings are those of Kubernetes (`podAffinity`, `podAntiAffinity`, `topologySpreadConstraints`, `hostPort`). A
selector is a name: the replicas that it selects carry it, and the rules of others refer to it.
"""

from typing import Literal

import msgspec

AffinityKind = Literal["affinity", "anti_affinity", "spread"]
NODE = ""
"""The domain of rules about each node alone; every other domain is a label of nodes."""


class AffinityRule(msgspec.Struct, frozen=True, omit_defaults=True):
    """One rule about the replicas that a selector selects, in each domain of nodes with one value of a label."""

    kind: AffinityKind
    selector: str
    domain: str = NODE
    max_skew: int = 1
    """Of `spread`: how many more of them a domain may have than the one that has fewest."""
    domains_min: int = 0
    """Of `spread`: with fewer domains than this, the fewest count as 0."""
    honours_labels: bool = True
    """Of `spread`: whether only nodes whose labels the replica accepts count as domains."""
    honours_taints: bool = False
    """Of `spread`: whether only nodes whose taints it tolerates count as domains."""

    def __str__(self) -> str:
        where = f"value of {self.domain}" if self.domain else "node"
        match self.kind:
            case "affinity":
                return f"on a {where} with {self.selector}"
            case "anti_affinity":
                return f"on no {where} with {self.selector}"
            case _:
                return f"at most {self.max_skew} more of {self.selector} on one {where} than on another"


Repels = tuple[str, str]
"""A domain, and the selector of replicas that are kept off it by a rule of one that stands there."""
Tally = tuple[tuple[str, int], ...]
"""How many replicas each selector selects, ascending; none is 0."""
RepelTally = tuple[tuple[Repels, int], ...]
