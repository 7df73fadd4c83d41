"""
Messages of the queue, one row each, and how far each log of the broker is archived.

Revision 0001, the first one.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

# For people: as a consumer sees them. Times beyond what a timestamp holds are its ends.
_VIEW = """
CREATE VIEW archived_messages AS
SELECT topic, queue_id, queue_offset, key, tag, headers, body,
       to_timestamp(least(greatest(born_at_ms, -62135596800000), 253402300799000) / 1000.0) AS born_at,
       to_timestamp(least(greatest(stored_at_ms, -62135596800000), 253402300799000) / 1000.0) AS stored_at,
       producer_id
FROM archived_records
WHERE batch IS NULL
"""


def upgrade() -> None:
    op.create_table(
        "archived_records",
        sa.Column("topic", sa.String(127, collation="C"), nullable=False),
        sa.Column("queue_id", sa.Integer, nullable=False),
        sa.Column("queue_offset", sa.BigInteger, nullable=False),
        sa.Column("log_position", sa.BigInteger, nullable=False),
        sa.Column("stored_at_ms", sa.BigInteger, nullable=False),
        sa.Column("born_at_ms", sa.BigInteger, nullable=False),
        sa.Column("producer_id", sa.BigInteger, nullable=False),
        sa.Column("producer_epoch", sa.BigInteger, nullable=False),
        sa.Column("sequence", sa.BigInteger, nullable=False),
        sa.Column("epoch", sa.BigInteger, nullable=False),
        sa.Column("records", sa.Integer, nullable=False),
        sa.Column("flags", sa.SmallInteger, nullable=False),
        sa.Column("key", sa.Text(collation="C"), nullable=False),
        sa.Column("tag", sa.Text(collation="C"), nullable=False),
        sa.Column("headers", JSONB, nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
        sa.Column("batch", sa.LargeBinary, nullable=True),
        sa.PrimaryKeyConstraint("topic", "queue_id", "queue_offset", name="pk_archived_records"),
    )
    op.create_index(
        "ix_archived_records_key",
        "archived_records",
        ["topic", "key", "log_position"],
        postgresql_where=sa.text("key <> ''"),
    )
    op.create_table(
        "archive_logs",
        sa.Column("log", sa.Text, nullable=False),
        sa.Column("store_id", sa.Text, nullable=False),
        sa.Column("position", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("log", name="pk_archive_logs"),
    )
    op.execute(_VIEW)


def downgrade() -> None:
    op.execute("DROP VIEW archived_messages")
    op.drop_table("archive_logs")
    op.drop_table("archived_records")
