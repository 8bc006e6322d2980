"""Records may name the record that has their spec. The tables stay; older programs could not read such records."""

from typing import Literal

revision = "0003"
down_revision = "0002"

STATEMENTS: dict[Literal["sqlite", "postgresql"], tuple[str, ...]] = {"sqlite": (), "postgresql": ()}


def upgrade() -> None:
    """Nothing to do: the version number alone makes older programs refuse."""
