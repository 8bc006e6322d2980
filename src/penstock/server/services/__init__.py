"""What the server does by itself: billing, alerts, estimates, nodes on demand, certificates."""
