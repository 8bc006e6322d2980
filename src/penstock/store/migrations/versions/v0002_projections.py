"""Adds projections of the log; on PostgreSQL also which of several servers leads, and when it last renewed that."""

revision = "0002"
down_revision = "0001"

STATEMENTS = {
    "sqlite": (
        "CREATE TABLE IF NOT EXISTS projections (name TEXT PRIMARY KEY, seq INTEGER NOT NULL, body BLOB NOT NULL)",
    ),
    "postgresql": (
        "CREATE TABLE projections (name text PRIMARY KEY, seq bigint NOT NULL, body bytea NOT NULL)",
        (
            "CREATE TABLE leader (id integer PRIMARY KEY CHECK (id = 1), name text NOT NULL, address text NOT NULL, "
            "pid integer NOT NULL, renewed timestamptz NOT NULL) WITH (fillfactor = 20)"
        ),
    ),
}


def upgrade() -> None:
    from alembic import op

    for statement in STATEMENTS[op.get_context().dialect.name]:
        op.execute(statement)
