"""What specs in logs of former versions mean."""

import msgspec
import pytest

from penstock.core.model.jobs import JobSpec
from penstock.testing.builders import job_spec


@pytest.mark.parametrize(("written", "limit_ms"), [({}, 900_000), ({"hang_limit_ms": 0}, 0)])
def test_a_hang_limit_of_a_former_log_is_read_and_written_as_it_was(written, limit_ms):
    former = msgspec.to_builtins(job_spec(1)) | written
    spec = msgspec.convert(former, JobSpec)
    assert spec.effective_hang_limit_ms == limit_ms
    assert msgspec.to_builtins(spec) == former
