"""One checkpoint of several ranks: their agreement, their copies, and the parts they write."""
