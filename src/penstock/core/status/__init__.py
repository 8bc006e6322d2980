"""Views of the cluster's condition: alerts, pools, quotas, fragmentation, missing capacity."""
