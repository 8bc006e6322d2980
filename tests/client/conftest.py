"""The server of the server's tests, for its client."""

from tests.server.conftest import jobs as jobs
from tests.server.conftest import server as server
