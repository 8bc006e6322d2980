"""Every decision in the log, made again from the log and checked against the rules that it names."""

from penstock.core.audit.rederive import audit
from penstock.core.audit.types import Check, NodeScore, Ruling

__all__ = ["Check", "NodeScore", "Ruling", "audit"]
