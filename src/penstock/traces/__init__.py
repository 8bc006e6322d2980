"""Traces of clusters: jobs with submit times, run times and nodes; read from many sources into one shape."""

from penstock.traces.detect import KINDS, load
from penstock.traces.errors import TraceError
from penstock.traces.loaders.plain_writer import write_csv
from penstock.traces.model import Outage, Seen, Trace, TraceJob, Work
from penstock.traces.nodes import given_cluster

__all__ = ["KINDS", "Outage", "Seen", "Trace", "TraceError", "TraceJob", "Work", "given_cluster", "load", "write_csv"]
