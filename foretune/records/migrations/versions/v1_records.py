"""Workloads, hardware and records.

``data`` is JSON in text and not of a JSON type, which has neither infinity nor every string.
"""

import sqlalchemy
from alembic import op

revision = "1"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Makes the tables."""
    text, column = sqlalchemy.Text, sqlalchemy.Column
    for name in ("foretune_workloads", "foretune_hardware"):
        op.create_table(
            name, column("key", text, primary_key=True), column("data", text, nullable=False)
        )
    op.create_table(
        "foretune_records",
        column("id", sqlalchemy.BigInteger, sqlalchemy.Identity(), primary_key=True),
        column("identity", text, nullable=False, unique=True),
        column("workload", text, nullable=False),
        column("hardware", text, nullable=False),
        column("status", text, nullable=False),
        column("data", text, nullable=False),
    )
    op.create_index("foretune_records_pairs", "foretune_records", ["workload", "hardware"])


def downgrade() -> None:
    """Removes them, with everything in them."""
    for name in ("records", "hardware", "workloads"):
        op.drop_table(f"foretune_{name}")
