"""How the cluster stands: alerts, pools, quotas, fragmentation, missing capacity."""
