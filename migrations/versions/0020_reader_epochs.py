"""
Marks of readers keep the epoch of the topic's brokers, so that a loss of messages is noticed at the next start.

Revision 0020, after 0019.
"""

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None


def upgrade() -> None:
    epoch = sa.Column("epoch", sa.BigInteger, nullable=False, server_default="0")
    op.add_column("reader_marks", epoch)


def downgrade() -> None:
    op.drop_column("reader_marks", "epoch")
