"""
Archives of groups of brokers: in which epochs a log was written, and what a group lost.

Revision 0002, after 0001.
"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # 0 and none: of a broker that runs alone.
    op.add_column(
        "archive_logs", sa.Column("epoch", sa.BigInteger, nullable=False, server_default="0")
    )
    op.add_column("archive_logs", sa.Column("epochs", sa.Text, nullable=False, server_default="[]"))
    # The columns of `archived_records`, in their order. A message may be lost more than once, so there is no key.
    op.execute(
        "CREATE TABLE archived_lost ("
        "LIKE archived_records, lost_in BIGINT NOT NULL, lost_at TIMESTAMPTZ NOT NULL)"
    )


def downgrade() -> None:
    op.drop_table("archived_lost")
    op.drop_column("archive_logs", "epochs")
    op.drop_column("archive_logs", "epoch")
