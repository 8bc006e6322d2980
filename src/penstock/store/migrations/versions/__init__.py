"""One module a version of the schema: its additions, by database. A released version is never changed."""
