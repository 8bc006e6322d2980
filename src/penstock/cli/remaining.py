"""How long a job still runs, for tables and pages."""

from penstock.api import types as api
from penstock.core.model.quantities import format_duration


def left(job: api.JobView, now_ms: int) -> str:
    """Return the expected remaining run time, '' where unknown."""
    if not job.ends_ms:
        return ""
    return f"~{format_duration(job.ends_ms - now_ms)}" if job.ends_ms > now_ms else "soon"
