"""
Keys of personal fields, one for each subject, and who was forgotten.

Revision 0019, after 0018.
"""

import sqlalchemy as sa
from alembic import op

from headrace.errors import DefinitionError

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
    keys = sa.table("subject_keys", sa.column("key"))
    held = op.get_bind().scalar(
        sa.select(sa.func.count()).select_from(keys).where(keys.c.key.is_not(None))
    )
    if held:
        raise DefinitionError(
            f"the table subject_keys still has keys ({held}), and without them all personal fields are lost for ever;"
            " nothing was changed; save the table first, on PostgreSQL with pg_dump --table=subject_keys, on"
            " SQLite with a copy of the file; then delete all of its rows, and go down again"
        )
    op.drop_table("subject_keys")
