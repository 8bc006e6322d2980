"""Calls of NVML: a function that is absent or refuses gives None, and its error is kept as a number.

NVML names few errors that matter to more than one call: the driver has gone (`DRIVER_GONE`), the device has gone
(`LOST`), it must be reset (`RESET_REQUIRED`). All others mean that one fact is not to be had.
"""

import ctypes
from collections.abc import Iterable
from typing import Any

UNINITIALIZED = 1
NOT_SUPPORTED = 3
NO_PERMISSION = 4
INSUFFICIENT_POWER = 8
DRIVER_NOT_LOADED = 9
TIMEOUT = 10
IRQ_ISSUE = 11
LIBRARY_NOT_FOUND = 12
FUNCTION_NOT_FOUND = 13
CORRUPTED_INFOROM = 14
LOST = 15
RESET_REQUIRED = 16
VERSION_MISMATCH = 18
UNKNOWN = 999
DRIVER_GONE = frozenset({UNINITIALIZED, DRIVER_NOT_LOADED})
"""Errors after which NVML is started anew."""
NO_INSTANCE = 2**32 - 1
"""What NVML writes for no instance of MIG."""
NUMBER_MAX = 2**53
_FIELD_KINDS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
"""Where the value of a field stands, by its type."""


class Calls:
    """The functions of the package `pynvml` (nvidia-ml-py), by name."""

    def __init__(self, library: Any) -> None:
        self.library = library
        self.errors: list[int] = []
        """Of the calls since it was emptied, in their order."""
        mismatch = getattr(library, "NVMLLibraryMismatchError", library.NVMLError)
        self._caught = (library.NVMLError, mismatch, ctypes.ArgumentError, AttributeError, TypeError, ValueError)

    def __call__(self, name: str, *arguments: Any) -> Any:
        """Return what a function returns; None where it is absent or fails."""
        try:
            return getattr(self.library, name)(*arguments)
        except self._caught as error:  # damaged texts of the driver are ValueErrors
            code = getattr(error, "value", FUNCTION_NOT_FOUND)
            self.errors.append(code if isinstance(code, int) else UNKNOWN)
            return None

    @property
    def refused(self) -> bool:
        """Whether a call failed for another reason than that the device has no such thing: it may have it."""
        return bool(set(self.errors) - {NOT_SUPPORTED, FUNCTION_NOT_FOUND})

    def count(self, name: str, *arguments: Any, most: int = NUMBER_MAX) -> int | None:
        """Return a number of a function, None where there is none from 0 to `most`."""
        return bounded(self(name, *arguments), most)

    def text(self, name: str, *arguments: Any) -> str:
        return _printable(self(name, *arguments))

    def fields(self, handle: Any, ids: Iterable[int]) -> dict[int, int]:
        """Return the values of fields in one call; those that are not supported are missing."""
        values = self("nvmlDeviceGetFieldValues", handle, list(ids))
        found: dict[int, int] = {}
        for value in () if values is None else values:
            if value.nvmlReturn == 0 and 0 < value.valueType < len(_FIELD_KINDS):
                number = bounded(getattr(value.value, _FIELD_KINDS[value.valueType]), NUMBER_MAX)
                if number is not None:
                    found[value.fieldId] = number
        return found


def text_in(struct: object, name: str) -> str:
    """Return a text of a struct; '' where it is damaged."""
    try:
        return _printable(getattr(struct, name, ""))
    except ValueError:  # the package decodes it
        return ""


def _printable(value: object) -> str:
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else value
    return text if isinstance(text, str) and text.isprintable() else ""


def bounded(value: object, most: int) -> int | None:
    """Return a whole number from 0 to `most`, None for any other value."""
    return value if isinstance(value, int) and 0 <= value <= most else None


def instance_of(value: object) -> int | None:
    """Return the number of an instance of MIG, None for what is none."""
    number = bounded(value, NO_INSTANCE)
    return None if number == NO_INSTANCE else number
