"""The operator of ElasticJobs: it makes their pods, one for each replica that starts, and keeps their status true.

It decides nothing. How many replicas run and where, the server decides, as for any other elastic job; an attempt has
pods of its own, so that growing, shrinking and restarting are one thing: save, leave, start anew.
"""
