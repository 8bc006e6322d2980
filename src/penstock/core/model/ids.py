"""Distinct types for identifiers, so that a job number cannot be passed for an attempt number."""

from typing import NewType

JobId = NewType("JobId", int)
AttemptNumber = NewType("AttemptNumber", int)
Rank = NewType("Rank", int)
NodeName = NewType("NodeName", str)
PoolName = NewType("PoolName", str)
QueueName = NewType("QueueName", str)
TenantName = NewType("TenantName", str)
UserName = NewType("UserName", str)
Epoch = NewType("Epoch", int)
"""Number of a controller's term: only the newest may commit."""
Incarnation = NewType("Incarnation", str)
"""One life of a node's agent state: a node that lost its processes comes back under another one."""
ClassId = NewType("ClassId", int)
"""Interned request class: jobs that are alike for the scheduler share it."""
