"""One module a version of the schema: what it adds, by database. A version that was released is never changed."""
