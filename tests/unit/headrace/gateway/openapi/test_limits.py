"""Schemas of commands have the limits of what ids, numbers and text may be."""

import re

from pydantic import Field

from headrace.domain.message import AggregateId, Command
from headrace.gateway.openapi.limits import bound_ids, bound_values, schemas_of


class Count(Command):
    id: AggregateId
    small: int = Field(ge=1, le=9)
    large: int
    names: list[str]


def test_values_of_a_body_have_the_limits_of_tables() -> None:
    references, schemas = schemas_of([Count], [])
    bound_ids([Count], references, schemas)
    bound_values([schemas["Count"]], schemas)
    fields = schemas["Count"]["properties"]
    assert (fields["id"]["minLength"], fields["id"]["maxLength"]) == (1, 255)
    assert (fields["small"]["minimum"], fields["small"]["maximum"]) == (1, 9)
    assert (fields["large"]["minimum"], fields["large"]["maximum"]) == (-(2**63) + 1, 2**63 - 1)
    assert not re.match(fields["names"]["items"]["pattern"], "a\0b")
    assert re.match(fields["names"]["items"]["pattern"], "a\nb")
