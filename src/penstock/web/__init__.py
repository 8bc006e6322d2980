"""What people look at in a browser. It translates what the core says and decides nothing."""
