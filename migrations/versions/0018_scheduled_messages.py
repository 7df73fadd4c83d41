"""
Messages for later, where the queue is a Kafka cluster, which keeps none.

Revision 0018, after 0017.
"""

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None

_NUMBER = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    op.create_table(
        "scheduled_messages",
        sa.Column("number", _NUMBER, primary_key=True, autoincrement=True),
        sa.Column("due", sa.DateTime(timezone=True), nullable=False),
        sa.Column("topic", sa.String(249), nullable=False),
        sa.Column("message", sa.LargeBinary, nullable=False),
    )
    op.create_index("ix_scheduled_messages_due", "scheduled_messages", ["due", "number"])


def downgrade() -> None:
    op.drop_index("ix_scheduled_messages_due", "scheduled_messages")
    op.drop_table("scheduled_messages")
