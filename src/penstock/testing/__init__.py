"""For tests of code that uses Penstock: policies, job files, engines. Shipped; nothing of the product imports it.

`builders`      nodes, asks, jobs and cluster files in few words
`harness`       a cluster moved by the real decisions, without clock, disk or processes
`worlds`        random clusters and streams of jobs, each from a seed
`engine`        an engine whose nodes and programs are simulated, in virtual time
`server`        a server in this process, on loopback, with a token, a client and such an engine
`openapi`       two documents of the HTTP API compared: what clients of the former would miss
`conformance`   the contract of an engine, as tests that its author runs

docs/testing.md shows each at work.
"""
