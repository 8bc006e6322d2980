"""Colours by meaning, safe for the colour-blind and under dark text: the `light` and `bright` schemes of Paul Tol.

Source: P. Tol, Colour Schemes, SRON/EPS/TN/09-002, 2021.
"""

from collections.abc import Sequence

TENANT_COLOURS = ("#77aadd", "#ee8866", "#44bb99", "#eedd88", "#ffaabb", "#99ddff", "#bbcc33", "#aaaa00", "#dddddd")
"""The last one is for all tenants beyond the others."""


def tenant_class(tenant: str, tenants: Sequence[str]) -> str:
    """Return the CSS class of a tenant: by its place among the tenants of the report."""
    return f"t{min(tenants.index(tenant), len(TENANT_COLOURS) - 1)}"
