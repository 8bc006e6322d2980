"""What all objects of an installation have in common: their type, their name and their labels."""

from typing import Any

Object = dict[str, Any]
NAME = "penstock"
MATCH = {"app.kubernetes.io/name": NAME}
"""Labels by which the server's pods are found."""


def meta(name: str, at: str = "", **more: Any) -> Object:
    """Return the metadata of an object of the installation; `at` is its namespace, empty where it has none."""
    labels = {**MATCH, "app.kubernetes.io/managed-by": NAME}
    return {"name": name, **({"namespace": at} if at else {}), "labels": labels, **more}
