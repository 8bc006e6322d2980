"""What the API server refuses, with the status and the reason that the real one gives."""

from collections.abc import Sequence
from typing import Any, NamedTuple


class Cause(NamedTuple):
    """One reason why an object is invalid."""

    reason: str
    message: str
    field: str


class Refused(Exception):
    """A request was refused. Shapes: `Status` of https://kubernetes.io/docs/reference/kubernetes-api/."""

    def __init__(self, code: int, reason: str, message: str, **details: Any) -> None:
        super().__init__(message)
        self.code, self.reason, self.message, self.details = code, reason, message, details

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "code": self.code,
        }
        return {**found, "details": self.details} if self.details else found


def absent_kind() -> Refused:
    """Return the refusal for a kind or part that is not there: a new one each time, as an error keeps its frames."""
    return Refused(404, "NotFound", "the server could not find the requested resource")


def not_found(plural: str, name: str) -> Refused:
    return Refused(404, "NotFound", f'{plural} "{name}" not found', name=name, kind=plural)


def already_exists(plural: str, name: str) -> Refused:
    return Refused(409, "AlreadyExists", f'{plural} "{name}" already exists', name=name, kind=plural)


def conflict(plural: str, name: str, why: str) -> Refused:
    text = f'Operation cannot be fulfilled on {plural} "{name}": {why}'
    return Refused(409, "Conflict", text, name=name, kind=plural)


def invalid(kind: str, name: str, field: str, why: str) -> Refused:
    return invalid_for(kind, name, [Cause("FieldValueInvalid", why, field)])


def invalid_for(kind: str, name: str, causes: Sequence[Cause]) -> Refused:
    found = ", ".join(f"{cause.field}: {cause.message}" for cause in causes)
    text = f'{kind} "{name}" is invalid: {found if len(causes) == 1 else f"[{found}]"}'
    return Refused(422, "Invalid", text, name=name, kind=kind, causes=[cause._asdict() for cause in causes])


def required_field(field: str, why: str) -> Cause:
    return Cause("FieldValueRequired", f"Required value: {why}", field)


def bad_request(why: str) -> Refused:
    return Refused(400, "BadRequest", why)


def expired(asked: int, oldest: int) -> Refused:
    return Refused(410, "Expired", f"too old resource version: {asked} ({oldest})")


def too_many(why: str, wait_s: int, cause: str = "") -> Refused:
    causes = [{"reason": cause, "message": why}] if cause else []
    return Refused(429, "TooManyRequests", why, retryAfterSeconds=wait_s, causes=causes)
