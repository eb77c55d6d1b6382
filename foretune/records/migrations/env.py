"""What Alembic runs: the migrations, in the transaction of the connection that it was given."""

from alembic import context

from foretune.records.migrations import VERSION_TABLE

context.configure(connection=context.config.attributes["connection"], version_table=VERSION_TABLE)
context.run_migrations()
