"""What the API server answers beside objects: pages, events of watches, refusals."""

import msgspec

from penstock.engines.kubernetes.objects.common import ListMetadata, Metadata, Wire


class StatusCause(Wire, frozen=True):
    reason: str = ""
    message: str = ""
    field: str = ""


class StatusDetails(Wire, frozen=True):
    name: str = ""
    kind: str = ""
    causes: tuple[StatusCause, ...] = ()
    retry_after_seconds: int = 0


class Status(Wire, frozen=True):
    """What the API server answers instead of an object."""

    status: str = ""
    reason: str = ""
    message: str = ""
    code: int = 0
    details: StatusDetails | None = None


class WatchEvent(Wire, frozen=True):
    """One line of a watch."""

    type: str
    object: msgspec.Raw


class Page(Wire, frozen=True):
    """A part of a list; its items are decoded one by one."""

    metadata: ListMetadata = ListMetadata()
    items: tuple[msgspec.Raw, ...] = ()


class AnyObject(Wire, frozen=True):
    """An object of which only the metadata matters, such as a bookmark."""

    metadata: Metadata = Metadata()


class ServedResource(Wire, frozen=True):
    name: str = ""


class ResourceList(Wire, frozen=True):
    """What the API server has of one version of a group."""

    resources: tuple[ServedResource, ...] = ()
