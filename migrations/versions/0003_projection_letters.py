"""
The letters of projections: what they could not apply, and how much waits behind it.

Revision 0003, after 0002.
"""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "projection_letters",
        sa.Column("name", sa.String(40), nullable=False),
        sa.Column("generation", sa.Integer, nullable=False),
        sa.Column("aggregate_id", sa.String(255), nullable=False),
        sa.Column("topic", sa.String(127), nullable=False),
        sa.Column("queue_id", sa.Integer, nullable=False),
        sa.Column("message_offset", sa.BigInteger, nullable=False),
        sa.Column("parked_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("held", sa.BigInteger, nullable=False),
        sa.Column("retries", sa.Integer, nullable=False),
        sa.Column("error", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("name", "generation", "aggregate_id"),
    )


def downgrade() -> None:
    op.drop_table("projection_letters")
