"""Programs on a node: how they are started, contained, watched and ended, whichever engine placed them."""
