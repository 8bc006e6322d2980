"""Kubernetes as an engine: its nodes are Penstock's nodes, its pods are replicas, and a binding starts one."""
