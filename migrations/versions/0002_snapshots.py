"""
Snapshots of aggregates.

Revision 0002, after 0001.
"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "snapshots",
        sa.Column("aggregate_id", sa.String(255), primary_key=True),
        sa.Column("aggregate_type", sa.String(127), nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("state_version", sa.Integer, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
    )


def downgrade() -> None:
    op.drop_table("snapshots")
