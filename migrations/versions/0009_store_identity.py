"""
The event store knows which one it is, and its streams carry a checksum.

Streams that are stored already keep none until `headrace stream check --fill-in`.

Revision 0009, after 0008.
"""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "store_identity",
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("store_id", sa.String(36), nullable=False),
        sa.Column("seal_key", sa.LargeBinary, nullable=False),
        sa.Column("made_at", sa.DateTime(timezone=True), nullable=False),
    )
    op.add_column("event_streams", sa.Column("checksum", sa.BigInteger))


def downgrade() -> None:
    with op.batch_alter_table("event_streams") as table:
        table.drop_column("checksum")
    op.drop_table("store_identity")
