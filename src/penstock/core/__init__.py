"""The pure core: every decision of Penstock, as functions of values.

No clock, no I/O, no randomness but a seeded generator passed in, no logging, no environment. The live server, the
simulators and the operator call the same functions.

Rooms, in the order in which to read them; each imports only those above it (a contract of the import linter):

- `model`: values: jobs, clusters, events, plans. `messages`: words between programs. Neither decides anything.
- `order`: who is next. `place`: where it fits.
- `config`: declared text to model and back. `state`: the fold of the log, and what is derived from it.
- `elastic`, `predict`, `share`: speeds by size, run times, pairs on one device.
- `preempt`: who leaves for whom. `cycle`: one planning run, from a snapshot to a verified plan.
- `ledger`: from events to money. `health`: hangs and anomalies. `status`: how the cluster stands.
- `lifecycle`: decisions that become events: submits, plans, reports, ends.
- `explain`: why a job waits. `audit`: decisions derived again from the log.
"""
