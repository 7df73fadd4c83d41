"""
Messages of the event topic that no reader can read are known until the event store has made up for them.

Revision 0013, after 0012.
"""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "topic_damages",
        sa.Column("topic", sa.String(150), nullable=False),
        sa.Column("topic_identity", sa.String(36), nullable=False),
        sa.Column("queue_id", sa.Integer, nullable=False),
        sa.Column("next_offset", sa.BigInteger, nullable=False),
        sa.Column("first_offset", sa.BigInteger, nullable=False),
        sa.Column("noted_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("taken_by", sa.String(36)),
        sa.Column("taken_until", sa.DateTime(timezone=True)),
        sa.Column("filled", sa.Boolean, nullable=False),
        sa.PrimaryKeyConstraint("topic", "topic_identity", "queue_id", "next_offset"),
    )


def downgrade() -> None:
    op.drop_table("topic_damages")
