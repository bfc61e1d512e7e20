"""What Alembic runs: on the connection that it was given, nowhere else."""

from alembic import context

from muster.records.tables import METADATA

connection = context.config.attributes["connection"]
context.configure(connection=connection, target_metadata=METADATA, render_as_batch=True)
with context.begin_transaction():
    context.run_migrations()
