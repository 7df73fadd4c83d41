"""One world: whatever happens in it follows from its seed."""

import asyncio
import random
import secrets
import uuid
from pathlib import Path

import pytest
import structlog

from headrace_mq.client.producer.queue_sender import new_producer_id
from headrace_mq.testing.simulated_loop import SimulationStalled, elapse
from headrace_mq.testing.simulation import InlineExecutor, Simulation, repeatable

FILE = Path("/file")


def test_a_run_returns_what_its_coroutine_returns_and_raises_what_it_raises() -> None:
    async def work() -> str:
        await elapse(5)
        return "done"

    assert Simulation(1).run(work()) == "done"
    with pytest.raises(SimulationStalled):
        Simulation(1).run(asyncio.Event().wait())


def test_a_trace_repeats_with_its_seed(play) -> None:
    async def story(pair) -> None:
        for _ in range(20):
            pair.client.transport.write(b"x" * pair.sim.chosen.randint(1, 900))
            await elapse(pair.sim.chosen.random())
        pair.sim.trace("the end")

    traces = [play(story, seed=seed, echoes=True).sim.trace for seed in (1, 1, 2)]
    assert traces[0].digest == traces[1].digest
    assert traces[0].lines == traces[1].lines
    assert traces[0].digest != traces[2].digest


def test_a_trace_tells_one_byte_from_another(play) -> None:
    def digest(byte: bytes) -> str:
        async def story(pair) -> None:
            pair.client.transport.write(byte)

        return play(story).sim.trace.digest

    assert digest(b"a") != digest(b"b")


def test_logs_go_into_the_trace_and_nowhere_else(capsys: pytest.CaptureFixture[str]) -> None:
    sim = Simulation(1)
    log = structlog.get_logger("test")

    async def speak() -> None:
        log.info("hello", b=2, a=1)

    async def main() -> None:
        process, _ = sim.start("one", "a")
        await process.spawn(speak())

    sim.run(main())
    assert [line.split(maxsplit=1)[1] for line in sim.trace.lines] == [
        "one info: a=1 b=2 event=hello"
    ]
    assert "hello" not in capsys.readouterr().out
    log.info("afterwards")
    assert "afterwards" in capsys.readouterr().out


def test_a_kill_leaves_the_disk_as_it_was_and_a_power_cut_does_not() -> None:
    async def write(sim: Simulation) -> None:
        _, files = sim.start("one", "a")
        fd = files.open(FILE, create=True)
        files.write(fd, 0, [b"unsynced"])
        files.sync_directory(FILE.parent)

    async def killed(sim: Simulation) -> bytes:
        await write(sim)
        for process, _ in list(sim._processes):
            sim.kill(process)
            sim.kill(process)
        return read(sim)

    async def cut(sim: Simulation) -> bytes:
        await write(sim)
        sim.power_off("a")
        sim.power_on("a")
        return read(sim)

    def read(sim: Simulation) -> bytes:
        _, files = sim.start("two", "a")
        return files.read(files.open(FILE), 0, 100)

    outcomes = {}
    for story in (killed, cut):
        worlds = [Simulation(seed) for seed in range(20)]
        outcomes[story] = {sim.run(story(sim)) for sim in worlds}
    assert outcomes[killed] == {b"unsynced"}
    assert outcomes[cut] > {b"unsynced"}


def test_a_stopped_process_stands_still_and_goes_on() -> None:
    sim = Simulation(1)
    ticks: list[float] = []

    async def tick() -> None:
        while True:
            await elapse(1)
            ticks.append(sim.loop.time())

    async def main() -> None:
        process, _ = sim.start("one", "a")
        process.spawn(tick())
        await elapse(2.5)
        sim.stop(process)
        await elapse(10)
        sim.resume(process)
        sim.resume(process)
        await elapse(1.5)

    sim.run(main())
    assert ticks == pytest.approx([1, 2, 12.5, 13.5])


def test_each_machine_has_one_disk_and_its_own_clock() -> None:
    sim = Simulation(1)
    assert sim.disk("a") is sim.disk("a")
    assert sim.disk("a") is not sim.disk("b")
    assert sim.clock(5).now_ms() == sim.clock().now_ms() + 5


def test_tasks_that_still_run_at_the_end_are_ended() -> None:
    sim = Simulation(1)
    ended: list[bool] = []

    async def forever() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    async def main() -> None:
        process, _ = sim.start("one", "a")
        process.spawn(forever())
        await elapse(1)

    sim.run(main())
    assert ended == [True]
    assert sim.loop.is_closed()


def drawn(seed: int) -> tuple[uuid.UUID, int, float]:
    with repeatable(random.Random(seed)):
        return uuid.uuid4(), new_producer_id(), random.SystemRandom().random()


def test_one_seed_draws_the_same_and_another_one_does_not() -> None:
    assert drawn(1) == drawn(1)
    assert drawn(1) != drawn(2)
    assert drawn(1)[0].version == 4


def test_afterwards_everything_is_random_again() -> None:
    real = uuid.uuid4, secrets.randbits, random.SystemRandom
    drawn(1)
    assert (uuid.uuid4, secrets.randbits, random.SystemRandom) == real


def test_a_job_is_done_when_it_was_handed_over() -> None:
    executor = InlineExecutor(1, thread_name_prefix="any")
    assert executor.submit(max, 1, 2).result(0) == 2
    with pytest.raises(ZeroDivisionError):
        executor.submit(divmod, 1, 0).result(0)
    executor.shutdown()
