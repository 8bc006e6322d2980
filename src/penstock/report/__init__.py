"""Static pages: of a run, of a simulation, of an invoice. They show what the core says and decide nothing."""
