"""The versions of the stores' schema, the same for both databases, and the upgrade from any of them to the newest.

A fresh database gets the statements of all versions at once. A database of an older program is upgraded by Alembic,
which is imported only then: it takes longer than a server's whole start.
"""

from typing import Any, Literal

from penstock.core.model.errors import StoreError
from penstock.store.migrations.versions import v0001_baseline, v0002_projections, v0003_shared_specs

Dialect = Literal["sqlite", "postgresql"]

VERSIONS = (v0001_baseline, v0002_projections, v0003_shared_specs)
SCHEMA_VERSION = len(VERSIONS)
STAMPS = (
    "CREATE TABLE alembic_version "
    "(version_num VARCHAR(32) NOT NULL, CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num))"
)
"""Alembic's version table, as Alembic itself would make it."""


def revision(version: int) -> str:
    """Return Alembic's name of a version."""
    return f"{version:04d}"


def fresh_statements(dialect: Dialect) -> list[str]:
    """Return the statements that make the newest schema in an empty database."""
    found = [statement for version in VERSIONS for statement in version.STATEMENTS[dialect]]
    stamp = f"INSERT INTO alembic_version VALUES ('{revision(SCHEMA_VERSION)}')"  # noqa: S608 - our own number
    return [*found, STAMPS, stamp]


def refuse_newer(found: int, where: str) -> None:
    """Raises: StoreError when the schema is of a newer program."""
    if found > SCHEMA_VERSION:
        raise StoreError(
            f"{where} has schema {found}, this program knows up to {SCHEMA_VERSION}",
            hint="use the newer program that wrote it",
        )


def upgrade(connection: Any, found: int) -> None:
    """Bring a schema of version `found` up to date, in the transaction that is open on `connection` (SQLAlchemy's).

    Idempotent.
    """
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", "penstock.store:migrations")
    config.attributes["connection"] = connection
    if not connection.dialect.has_table(connection, "alembic_version"):
        command.stamp(config, revision(found))
    command.upgrade(config, "head")
