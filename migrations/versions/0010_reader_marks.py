"""
Readers of events know which event topic and which event store they belong to.

Revision 0010, after 0009.
"""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "reader_marks",
        sa.Column("name", sa.String(150), nullable=False),
        sa.Column("generation", sa.Integer, nullable=False),
        sa.Column("queue_id", sa.Integer, nullable=False),
        sa.Column("topic_identity", sa.String(36), nullable=False),
        sa.Column("store_identity", sa.String(36), nullable=False),
        sa.Column("next_offset", sa.BigInteger, nullable=False),
        sa.Column("message_id", sa.String(255), nullable=False),
        sa.Column("aggregate_id", sa.String(255), nullable=False),
        sa.Column("command_id", sa.String(255), nullable=False),
        sa.PrimaryKeyConstraint("name", "generation", "queue_id"),
    )


def downgrade() -> None:
    op.drop_table("reader_marks")
