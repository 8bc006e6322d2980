"""Static pages: of a run, of a simulation, of an invoice. They show the core's results and decide nothing."""
