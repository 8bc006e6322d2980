"""The log as the first programs made it (SQLite: `user_version` 1). PostgreSQL keeps snapshots in a table."""

revision = "0001"
down_revision = None

STATEMENTS = {
    "sqlite": (
        "CREATE TABLE IF NOT EXISTS term (id INTEGER PRIMARY KEY CHECK (id = 1), epoch INTEGER NOT NULL)",
        "INSERT OR IGNORE INTO term VALUES (1, 0)",
        (
            "CREATE TABLE IF NOT EXISTS events "
            "(seq INTEGER PRIMARY KEY, time_ms INTEGER NOT NULL, job INTEGER, body BLOB NOT NULL)"
        ),
        "CREATE INDEX IF NOT EXISTS events_of_job ON events (job, seq) WHERE job IS NOT NULL",
        "CREATE TABLE IF NOT EXISTS finished (id INTEGER PRIMARY KEY, state TEXT NOT NULL, body BLOB NOT NULL)",
    ),
    "postgresql": (
        "CREATE TABLE term (id integer PRIMARY KEY CHECK (id = 1), epoch bigint NOT NULL)",
        "INSERT INTO term VALUES (1, 0)",
        "CREATE TABLE events (seq bigint PRIMARY KEY, time_ms bigint NOT NULL, job bigint, body bytea NOT NULL)",
        "CREATE INDEX events_of_job ON events (job, seq) WHERE job IS NOT NULL",
        "CREATE TABLE finished (id bigint PRIMARY KEY, state text NOT NULL, body bytea NOT NULL)",
        "CREATE TABLE snapshots (seq bigint PRIMARY KEY, digest bytea NOT NULL, body bytea NOT NULL)",
    ),
}


def upgrade() -> None:
    from alembic import op

    for statement in STATEMENTS[op.get_context().dialect.name]:
        op.execute(statement)
