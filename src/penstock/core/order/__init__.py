"""Order: which waiting job is next. A queue's policy gives a key; the tree merges its children by it."""
