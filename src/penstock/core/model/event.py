"""What all events have in common."""

import msgspec


class Event(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type"):
    """Base of all events."""
