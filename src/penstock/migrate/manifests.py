"""Kubernetes objects out of YAML files: several documents in a file, lists of objects, and nothing of the server."""

from collections.abc import Callable, Iterable
from fractions import Fraction
from pathlib import Path

from penstock.core.model.quantities import BYTES
from penstock.formats.files import whole_text
from penstock.formats.quantities import kubernetes_quantity, rounded_up
from penstock.migrate.errors import ImportFault
from penstock.migrate.fields import Fields
from penstock.migrate.located import YAML_BYTES_MAX, LocatedTable, Text, Value, documents, line_inside
from penstock.migrate.model import Amount
from penstock.migrate.report import MigrationReport, SourcePlace

FILES_MAX = 1_000
OBJECTS_MAX = 20_000
PRIORITY_MAX = 10_000
"""The highest priority of a job in Penstock."""
EMBEDDED_MAX = 16
"""Configurations inside ConfigMaps."""
CHARACTERS_MAX = 64 * 2**20
"""Characters of all files together."""
DEVICE_RESOURCES = {
    "nvidia.com/gpu": "nvidia",
    "amd.com/gpu": "amd",
    "gpu.intel.com/i915": "intel",
    "gpu.intel.com/xe": "intel",
    "habana.ai/gaudi": "habana",
    "google.com/tpu": "google",
    "aws.amazon.com/neuron": "aws",
    "huawei.com/Ascend910": "huawei",
}
"""Extended resources that are whole accelerators, with their vendor."""
_VENDORS = {"ascend": "huawei"}
"""Vendors as nodes name them, where that is another word."""
_MIG_PREFIX = "nvidia.com/mig-"
_MIG_SLICES = 7


class Object:
    """One object: its group, kind, name and fields. `top` holds every field beside kind and metadata."""

    def __init__(self, table: LocatedTable, report: MigrationReport) -> None:
        top = Fields(table, "", report)
        self.top, self.place = top, table.place
        self.group = top.text("apiVersion").rpartition("/")[0]
        self.kind = top.text("kind")
        metadata = top.inner("metadata")
        self.name = metadata.text("name") if metadata else ""
        self.namespace = metadata.text("namespace") if metadata else ""
        self.metadata = metadata

    def named(self) -> str:
        """Return the object's name. Raises: ImportFault when it has none."""
        if not self.name:
            raise self.place.fault("metadata.name", "", f"a {self.kind} with a name")
        return self.name

    def spec(self) -> Fields:
        """Return the fields of `spec`; an object without one has none. Raises: ImportFault for slips beside it."""
        found = self.top.inner("spec")
        self.top.skip("status")
        self.top.done()
        return found or Fields(LocatedTable(self.place, ()), "spec", self.top.report)


def read_documents(paths: Iterable[Path]) -> list[Value]:
    """Return the YAML documents of all files, in their order. Raises: ImportFault, also when there is no file."""
    given = list(paths)
    if not 0 < len(given) <= FILES_MAX:
        raise ImportFault("", value=str(len(given)), expected=f"1 to {FILES_MAX} files")
    found: list[Value] = []
    characters = 0
    for path in given:
        text = whole_text(path, SourcePlace, bytes_max=YAML_BYTES_MAX)
        characters += len(text)
        if characters > CHARACTERS_MAX:
            raise ImportFault(str(path), expected=f"at most {CHARACTERS_MAX} characters in all files together")
        found += documents(text, str(path))
    return found


def objects(given: Iterable[Value], report: MigrationReport) -> list[Object]:
    """Return the objects in documents; those in a `List`, or a list of one kind, each by itself.

    Raises: ImportFault for a document that is no object, and above `OBJECTS_MAX` objects.
    """
    found: list[Object] = []
    for document in given:
        found += _objects_in(document, report)
        if len(found) > OBJECTS_MAX:
            raise document.place.fault("items", len(found), f"at most {OBJECTS_MAX} objects", "import a part of them")
    return found


def _objects_in(value: Value, report: MigrationReport) -> list[Object]:
    if not isinstance(value, LocatedTable):
        raise value.place.fault("", "", "a mapping with apiVersion and kind")
    found = Object(value, report)
    if not found.kind:
        raise value.place.fault("kind", "", "a kind, such as ClusterQueue")
    if not found.kind.endswith("List"):
        return [found]
    kind = found.kind.removesuffix("List")
    inner: list[Object] = []
    for fields in found.top.items("items"):
        item = fields.as_table()
        one = Object(item, report)
        one.kind = one.kind or kind
        one.group = one.group or found.group
        if not one.kind:
            raise item.place.fault("kind", "", "a kind, such as ClusterQueue")
        inner.append(one)
    return inner


def device_vendor(resource: str) -> str:
    """Return the vendor of an extended resource that is an accelerator, else an empty text."""
    return DEVICE_RESOURCES.get(resource, "")


def device_resource(vendor: str) -> str:
    """Return the resource that the whole accelerators of a vendor are, else an empty text."""
    return next((name for name, one in DEVICE_RESOURCES.items() if one == _VENDORS.get(vendor, vendor)), "")


def amount_field(fields: Fields, resource: str, key: str, note: str, flavour: str = "") -> Amount | None:
    """Read one quantity of a resource and report it.

    Args:
        key: the field with the quantity. resource: its resource. note: its outcome.
    Returns: an amount whose `nominal` it is, or None for a resource that Penstock does not count.
    """
    number = fields.quantity(key, kubernetes_quantity, "8, 1500m or 64Gi")
    found = amount_of_resource(resource, number, flavour)
    if found is None:
        fields.lost(key, f"Penstock has no quota for {resource}: only for devices, cpus, memory, storage and jobs")
    elif resource.startswith(_MIG_PREFIX):
        fields.approximated(key, f"{note} of devices: a profile counts its compute slices of {_MIG_SLICES}")
    elif Fraction(found.nominal, 1 if found.resource in BYTES else 1000) != number:
        fields.approximated(key, f"{note}, rounded up to a whole step of 0.001 (memory, storage: of 1 byte)")
    else:
        fields.mapped(key, note)
    return found


def amount_of_resource(resource: str, number: Fraction, flavour: str = "") -> Amount | None:
    """Return a number of a Kubernetes resource in Penstock's units, or None for resources that are not counted."""
    if resource == "cpu":
        return Amount("cpus", flavour, rounded_up(number, 1000))
    if resource == "memory":
        return Amount("memory", flavour, rounded_up(number))
    if resource == "ephemeral-storage":
        return Amount("storage", flavour, rounded_up(number))
    if device_vendor(resource):
        return Amount("devices", flavour, rounded_up(number, 1000))
    if resource.startswith(_MIG_PREFIX):
        slices = resource.removeprefix(_MIG_PREFIX).partition("g")[0]
        if slices.isdecimal() and 1 <= len(slices) <= 2:
            return Amount("devices", flavour, rounded_up(number * int(slices), 1000) // _MIG_SLICES)
    return None


def resource_list(parent: Fields, key: str, note: str, take: Callable[[Amount], None]) -> None:
    """Read a mapping of resources to quantities; `take` gets each amount that Penstock counts."""
    inner = parent.inner(key)
    if inner is None:
        return
    for resource in inner.names():
        amount = amount_field(inner, resource, resource, note)
        if amount is not None:
            take(amount)


def text_pairs(fields: Fields | None) -> tuple[tuple[str, str], ...]:
    """Return a mapping of texts, such as labels, sorted; entries that a label of Penstock cannot be are left out."""
    if fields is None:
        return ()
    found = []
    for key in fields.names():
        value = fields.value(key)
        if not isinstance(value, Text):
            raise fields.fault(key, "a text")
        if key and "=" not in key:
            found.append((key, value.text))
    return tuple(sorted(found))


def embedded(things: Iterable[Object], ending: str) -> list[Value]:
    """Return the documents in the data of ConfigMaps whose key ends so; their other keys are reported.

    Raises: ImportFault for a value that is no YAML, and above `EMBEDDED_MAX` such keys.
    """
    found: list[Value] = []
    count = 0
    for one in things:
        data = one.top.inner("data") if one.kind == "ConfigMap" else None
        for key in data.names() if data else ():
            assert data is not None
            if not key.endswith(ending):
                data.lost(key, "a setting of that scheduler alone")
                continue
            value = data.value(key)
            count += 1
            if not isinstance(value, Text):
                raise data.fault(key, "a text that holds YAML")
            if count > EMBEDDED_MAX:
                raise data.fault(key, f"at most {EMBEDDED_MAX} such texts")
            found += documents(value.text, value.place.file, line_first=line_inside(value))
    return found


def priority_class(one: Object) -> None:
    """Report a PriorityClass: Penstock's jobs have a number instead."""
    value = one.top.integer("value", 0, low=-(2**31), high=2**31 - 1)
    how = f"jobs of class '{one.named()}' say `priority: {value}`"
    if not 0 <= value <= PRIORITY_MAX:
        how = f"jobs of class '{one.named()}' say a `priority` from 0 to {PRIORITY_MAX} that keeps the order of classes"
    one.top.approximated("value", how)
    one.top.lost("description", "Penstock has no named classes but low, medium and high")
    one.top.lost("globalDefault", "a job that says nothing has priority medium (500)")
    one.top.lost("preemptionPolicy", "whether a job may preempt is a rule of its queue")
    one.top.done()
