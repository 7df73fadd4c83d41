"""Pure cores decide without waiting, without a clock and without files: time is passed in."""

import ast
from fnmatch import fnmatchcase
from typing import Any

import pytest

PURE = [
    "headrace.domain.*",
    "headrace.commands.mailbox",
    "headrace.events.append_batch",
    "headrace.projections.definition.fold",
    "headrace.subscriptions.gate",
    "headrace.processes.process",
    "headrace.processes.process_manager",
    "headrace_mq.access.*",
    "headrace_mq.archive.backlog",
    "headrace_mq.archive.rebuilt",
    "headrace_mq.archive.rows",
    "headrace_mq.broker.transactions.checkers",
    "headrace_mq.broker.groups.members",
    "headrace_mq.broker.groups.locks",
    "headrace_mq.broker.schedule.entries",
    "headrace_mq.broker.schedule.journal",
    "headrace_mq.broker.schedule.wheel",
    "headrace_mq.broker.transactions.drafts",
    "headrace_mq.broker.transactions.journal",
    "headrace_mq.broker.transactions.undecided",
    "headrace_mq.client.group.allocation",
    "headrace_mq.cluster.election",
    "headrace_mq.cluster.frames",
    "headrace_mq.cluster.leadership",
    "headrace_mq.cluster.member",
    "headrace_mq.client.fetch.queue_priorities",
    "headrace_mq.client.fetch.process_queue",
    "headrace_mq.client.group.rebalance",
    "headrace_mq.filters.*",
    "headrace_mq.protocol.*",
    "headrace_mq.store.compaction.plan",
    "headrace_mq.store.log.batch_check",
    "headrace_mq.store.compaction.latest_keys",
    "headrace_mq.store.retention.retention",
    "headrace_mq.supervisor.supervision",
    "headrace_mq.testing.history",
]
CLOCKS = {"time", "asyncio", "threading", "socket", "selectors", "subprocess"}
CALLS = {"open", "now", "utcnow", "today", "sleep"}


def impurities(tree: ast.AST) -> list[str]:
    """Names what a pure module must not have, with its line."""
    found = []
    for node in ast.walk(tree):
        what = None
        if isinstance(node, ast.AsyncFunctionDef | ast.Await | ast.AsyncFor | ast.AsyncWith):
            what = type(node).__name__
        elif isinstance(node, ast.Import):
            modules = {name.name.partition(".")[0] for name in node.names}
            what = f"import {modules & CLOCKS}" if modules & CLOCKS else None
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in CLOCKS:
            what = f"import {node.module}"
        elif isinstance(node, ast.Call):
            name = getattr(node.func, "id", getattr(node.func, "attr", ""))
            what = f"call of {name}" if name in CALLS else None
        if what is not None:
            found.append(f"line {node.lineno}: {what}")
    return found


def test_pure_modules_do_not_wait_ask_for_the_time_or_touch_files(modules: Any) -> None:
    found = {
        module.where: impurities(module.tree)
        for module in modules
        if any(fnmatchcase(module.name, pattern) for pattern in PURE)
    }
    assert {where: what for where, what in found.items() if what} == {}


def test_every_module_listed_as_pure_exists(modules: Any) -> None:
    names = [module.name for module in modules]
    missing = [p for p in PURE if not any(fnmatchcase(name, p) for name in names)]
    assert missing == []


@pytest.mark.parametrize(
    "code",
    [
        "async def wait(): ...",
        "import time",
        "from asyncio import Queue",
        "when = datetime.now(UTC)",
        "open('file')",
        "path.open()",
    ],
)
def test_each_impurity_is_found(code: str) -> None:
    assert impurities(ast.parse(code)) != []
