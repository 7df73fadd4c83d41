"""
Keys of personal fields, one for each subject, and who was forgotten.

Revision 0019, after 0018.
"""

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "subject_keys",
        sa.Column("subject", sa.String(255), primary_key=True),
        sa.Column("key", sa.LargeBinary),
        sa.Column("wrapped", sa.Boolean, nullable=False),
        sa.Column("made_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("forgotten_at", sa.DateTime(timezone=True)),
    )


def downgrade() -> None:
    op.drop_table("subject_keys")
