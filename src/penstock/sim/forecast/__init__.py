"""What the simulator says of the live cluster: what a request would do, and when waiting jobs start."""
