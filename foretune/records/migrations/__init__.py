"""Alembic's migrations of a store in PostgreSQL; ``foretune.records.postgres`` runs them.

A change of the schema is one more file in ``versions/`` with the next number, so that every store
there is can be brought to it, and an older foretune can tell that it does not know it.

``env`` is what Alembic runs, ``versions`` the changes.
"""

VERSION_TABLE = "foretune_version"
"""Holds the version of the schema: a name that no other program in the database takes."""
