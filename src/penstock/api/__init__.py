"""What goes over HTTP: the answers of `/api/v1` as typed values, shared by server and client."""
