"""One module a source of traces. Each has `read(path) -> Trace`, which raises `TraceError` and nothing else."""
