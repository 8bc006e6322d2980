"""Plain names for queues, pools, nodes and tenants: cluster files allow fewer names than other schedulers."""

from penstock.core.order.extension import NAME_CHARACTERS
from penstock.formats import names
from penstock.formats.names import NAME_CHARACTERS_MAX


class Names(names.Names):
    """Of cluster files: 1 to 63 letters, digits, '.', '_', '-'."""

    def allowed(self, wish: str) -> str:
        base = "".join(c if c in NAME_CHARACTERS else "_" for c in wish)[:NAME_CHARACTERS_MAX] or "unnamed"
        return "_" + base[1:] if base.startswith(".") else base  # no node has such a name
