"""Records may name the record that has their spec. The tables stay; older programs could not read what is in them."""

from typing import Literal

revision = "0003"
down_revision = "0002"

STATEMENTS: dict[Literal["sqlite", "postgresql"], tuple[str, ...]] = {"sqlite": (), "postgresql": ()}


def upgrade() -> None:
    """Nothing to do: the number alone tells older programs."""
