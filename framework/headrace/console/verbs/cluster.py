"""
The verbs about a group of brokers: status and switchover.

    headrace console --record postgresql://…   ─▶  cluster status, cluster switchover

Used by `headrace console` with a record. What changes the record itself (remove, promote, settle) stays on the command
line: it is for a group that has lost brokers, and a record knows no users.
"""

from collections.abc import Mapping
from typing import Any

from headrace.console.problems import Mistake
from headrace.console.verbs.verb import Consequence, Given, Verb, VerbField
from headrace.errors import HeadraceError
from headrace.figures.cluster import (
    SWITCH_S_MAX,
    RecordPlace,
    ack_shown,
    group_shown,
    later,
    look,
)
from headrace_mq.admin.client import AdminClient

__all__ = ["ClusterVerbs"]


class ClusterVerbs:
    """What can be asked of a group.

    Args:
        place: where its record is.
    """

    def __init__(self, place: RecordPlace) -> None:
        self._place = place

    @property
    def verbs(self) -> Mapping[str, Verb]:
        """All of them by their names."""
        to = VerbField("to", default="")
        return {
            "cluster status": Verb("cluster status", self._status),
            "cluster switchover": Verb(
                "cluster switchover",
                self._switchover,
                (to,),
                self._before_switchover,
                lambda _, answer: (
                    f"{answer['leader']} leads in epoch {answer['epoch']:,}; before, {answer['before']} did"
                ),
            ),
        }

    async def _status(self, admin: AdminClient, _: Given) -> dict[str, Any]:
        status = await admin.status()  # refused to those who may not read the cluster
        try:
            found, known = await look(self._place)
        except HeadraceError as error:
            raise Mistake(str(error)) from error
        shown = group_shown(found, known)
        silent = set(shown["in_sync"]) - {one["name"] for one in shown["replicas"]}
        shown["replicas"] += [
            {
                "name": name,
                "in_sync": True,
                "reported_ms": None,
                "epoch": None,
                "bytes": None,
                "lacks_bytes": None,
            }
            for name in sorted(silent)
        ]
        leads = next(iter(status.leads), None)
        losses = {} if leads is None else {one.name: one.loss_bytes for one in leads.replicas}
        for one in shown["replicas"]:
            one["loss_bytes"] = losses.get(one["name"])
        loss = {
            "loss_bytes": None if leads is None else leads.loss_bytes,
            "loss_ms": None if leads is None else leads.loss_ms,
        }
        place = {"cluster": self._place.cluster, "group": self._place.group}
        return {**place, **shown, **loss, "acknowledged_by": ack_shown(found)}

    async def _switchover(self, admin: AdminClient, given: Given) -> dict[str, Any]:
        try:
            before, _ = await look(self._place)
            chosen = await admin.hand_over(given["to"])
            after = await later(before, self._place)
        except HeadraceError as error:
            raise Mistake(str(error)) from error
        if after is None:
            raise Mistake(
                f"{before.leader} still leads: {chosen} did not take over in {SWITCH_S_MAX} s; see the brokers' logs"
            )
        return {"leader": after.leader, "epoch": after.epoch, "before": before.leader}

    async def _before_switchover(self, admin: AdminClient, given: Given) -> Consequence:
        found = await self._status(admin, given)
        others = sorted(set(found["in_sync"]) - {found["leader"]})
        to = given["to"]
        hindered = ""
        if not others:
            hindered = "no other broker is in sync; wait until one is"
        elif to and to not in others:
            hindered = f"{to} is not in sync; choose one of {', '.join(others)}"
        who = to or (others[0] if len(others) == 1 else "one of " + ", ".join(others))
        return Consequence(
            (
                f"{found['leader']} stops to lead, and {who} leads in its place.",
                "Clients wait for less than a second, and go on at the new leader. No message is lost.",
            ),
            hindered=hindered,
        )
