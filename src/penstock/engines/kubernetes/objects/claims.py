"""What a claim to a volume asks for, in a claim of its own and in the template of a pod's."""

from penstock.engines.kubernetes.objects.common import Amounts, LabelSelector, Wire


class ClaimResources(Wire, frozen=True):
    requests: Amounts = {}


class ClaimSpec(Wire, frozen=True):
    storage_class_name: str | None = None
    """None: the cluster's default at its creation; empty: volumes of no class."""
    volume_name: str = ""
    access_modes: tuple[str, ...] = ()
    volume_mode: str = "Filesystem"
    resources: ClaimResources = ClaimResources()
    selector: LabelSelector | None = None


class ClaimTemplate(Wire, frozen=True):
    spec: ClaimSpec = ClaimSpec()


class EphemeralSource(Wire, frozen=True):
    """A volume with a claim of its own, named like the pod and the volume, joined by a hyphen."""

    volume_claim_template: ClaimTemplate = ClaimTemplate()
