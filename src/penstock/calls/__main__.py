"""The program of a job that is a call of a function: calls it, and ends its output with the result."""

import os
import pickle
import sys
import traceback
from typing import Any

from penstock import calls

NEEDS = "the Python of the job needs cloudpickle: pip install 'penstock[sdk]' there, or name another one by python="
NOT_THERE = "the job's Python does not have it: install it there, or cloudpickle.register_pickle_by_value(module)"


def main() -> int:
    """Call the function in this job's variables. Returns: the exit code, 0 when it has returned a value."""
    output = os.dup(1)  # the function may close standard output, or send it elsewhere
    key = os.environ.pop(calls.KEY_VARIABLE, "")
    call_id, kind, data = _outcome(key)
    sys.stdout.flush()
    sys.stderr.flush()
    if key and call_id:
        for line in calls.lines_of(key, call_id, kind, data):
            os.write(output, line)
    return 0 if kind == calls.VALUE else 1


def _outcome(key: str) -> tuple[str, str, bytes]:
    """Return the call, the kind of its result, and the result packed."""
    try:
        about, packed = calls.call_in(os.environ, key)
    except ValueError as error:
        sys.stderr.write(f"penstock: {error}\n")
        return "", calls.TEXT, b""
    for name in [name for name in os.environ if name.startswith(calls.ABOUT_VARIABLE)]:
        del os.environ[name]  # programs that the function starts need none of it
    kind, plain = _called(about, packed)
    data = calls.packed(plain)
    if len(data) > calls.RESULT_MAX_BYTES:
        text = f"the result has {len(data):,} bytes, pickled and compressed, and may have {calls.RESULT_MAX_BYTES:,}"
        kind, data = calls.TEXT, calls.packed(f"{text}: write it into a file, and return its path".encode())
    return about.call_id, kind, data


def _called(about: calls.About, packed: bytes) -> tuple[str, bytes]:
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    if here != about.python:
        text = f"the function was pickled by Python {about.python}, and the job runs Python {here}: name one by python="
        return calls.TEXT, text.encode()
    try:
        import cloudpickle
    except ImportError:
        return calls.TEXT, NEEDS.encode()
    sys.path += [path for path in about.paths if path not in sys.path]
    try:
        function, arguments, named = pickle.loads(calls.unpacked(packed))  # noqa: S301 - its MAC is right
    except ImportError as error:
        return calls.TEXT, f"{error}: {NOT_THERE}".encode()
    except Exception as error:  # noqa: BLE001 - any object may be restored in its own way
        return calls.TEXT, f"the call cannot be read in the job: {type(error).__name__}: {error}".encode()
    try:
        value = function(*arguments, **named)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - whatever it raises is its result, SystemExit too
        return _raised(error)
    try:
        return calls.VALUE, cloudpickle.dumps(value)
    except Exception as error:  # noqa: BLE001 - any object may refuse in its own way
        text = f"the result, of type {type(value).__name__}, cannot be pickled: {error}"
        return calls.TEXT, text.encode()


def _raised(error: BaseException) -> tuple[str, bytes]:
    """Return an exception as a result; as text where it could not be raised again."""
    import cloudpickle

    if error.__traceback__ is not None:
        error.__traceback__ = error.__traceback__.tb_next  # without the frame of this program
    text = "".join(traceback.format_exception(error))
    sys.stderr.write(text)
    known: Any = error.with_traceback(None)
    try:
        data = cloudpickle.dumps((known, text))
        pickle.loads(data)  # noqa: S301 - made one line above
    except Exception:  # noqa: BLE001 - an exception with arguments of its own is often not restorable
        return calls.TEXT, text.encode()
    return calls.RAISED, data


if __name__ == "__main__":
    sys.exit(main())
