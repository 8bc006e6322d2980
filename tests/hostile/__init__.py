"""Jobs that do their worst beside those of another tenant, and accounts that rename what root is about to touch."""
