"""Types of the HTTP API: the answers of `/api/v1` as typed values, shared by server and client."""
