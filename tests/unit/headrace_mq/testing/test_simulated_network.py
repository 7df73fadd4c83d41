"""The simulated network: who reaches whom, and how each side learns that it does not."""

import asyncio

import pytest

from headrace_mq.testing.simulated_stream import Packet


def test_bytes_arrive_in_order_cut_anywhere(play) -> None:
    sent = bytes(range(256)) * 40

    async def story(pair) -> None:
        for at in range(0, len(sent), 64):
            pair.client.transport.write(sent[at : at + 64])
            if at % 640 == 0:
                await pair.sim.elapse(0.001)
        await pair.sim.elapse(10)
        assert pair.client.data == sent
        assert pair.server.data == sent
        assert pair.client.pieces > 1

    play(story, echoes=True)


def test_every_packet_is_seen_where_it_leaves_and_where_it_arrives(play) -> None:
    packets: list[Packet] = []

    async def story(pair) -> None:
        pair.sim.network.taps.append(packets.append)
        pair.client.transport.write(b"hello")
        await pair.sim.elapse(1)

    play(story)
    left = [packet for packet in packets if not packet.arrives]
    came = [packet for packet in packets if packet.arrives]
    assert left == [Packet(1, True, False, "client", "server", b"hello")]
    assert b"".join(packet.data for packet in came) == b"hello"
    assert all(packet.upstream for packet in came)


def test_a_connection_without_a_listener_is_refused(play) -> None:
    async def story(pair) -> None:
        with pytest.raises(ConnectionRefusedError):
            await pair.connect(port=2)
        pair.listener.close()
        with pytest.raises(ConnectionRefusedError):
            await pair.connect()

    play(story)


def test_an_address_is_listened_on_once_and_port_0_is_a_free_one(play) -> None:
    async def story(pair) -> None:
        with pytest.raises(OSError, match="in use"):
            await pair.listen()
        ports = []
        for _ in range(2):
            server = await pair.listen(port=0)
            ports.append(server.sockets[0].getsockname())
        assert len(set(ports)) == 2
        await pair.connect(port=ports[0][1])

    play(story)


def test_a_partition_holds_bytes_back_until_it_ends(play) -> None:
    async def story(pair) -> None:
        pair.sim.network.part("c", "s")
        pair.client.transport.write(b"late")
        await pair.sim.elapse(3)
        assert pair.server.data == b""
        pair.sim.network.join("c", "s")
        await pair.sim.elapse(3)
        assert pair.server.data == b"late"
        assert not pair.client.lost.is_set()

    play(story)


def test_a_long_partition_ends_a_connection_on_each_side_in_its_own_time(play) -> None:
    async def story(pair) -> None:
        pair.sim.network.part("c", "s")
        await pair.client.lost.wait()
        assert isinstance(pair.client.error, TimeoutError)
        assert 5 <= pair.client.lost_at <= 11
        assert not pair.server.lost.is_set()
        await pair.server.lost.wait()
        assert isinstance(pair.server.error, TimeoutError)
        assert 30 <= pair.server.lost_at <= 61

    play(story)


def test_a_side_that_gave_up_is_gone_for_the_other_when_packets_pass_again(play) -> None:
    async def story(pair) -> None:
        pair.sim.network.part("c", "s")
        await pair.client.lost.wait()
        pair.sim.network.join("c", "s")
        await pair.server.lost.wait()
        assert isinstance(pair.server.error, ConnectionResetError)

    play(story)


def test_a_connection_attempt_waits_for_the_end_of_a_partition_or_gives_up(play) -> None:
    async def story(pair) -> None:
        pair.sim.network.part("c", "s")
        trying = asyncio.create_task(pair.connect())
        await pair.sim.elapse(20)
        assert not trying.done()
        pair.sim.network.join("c", "s")
        await trying
        pair.sim.network.part("c", "s")
        with pytest.raises(TimeoutError):
            await pair.connect()

    play(story)


def test_a_dropped_connection_is_reset_on_both_sides(play) -> None:
    async def story(pair) -> None:
        assert pair.sim.network.drop_one() == "client-server"
        for side in (pair.client, pair.server):
            await side.lost.wait()
            assert isinstance(side.error, ConnectionResetError)
        assert pair.sim.network.drop_one() is None

    play(story)


@pytest.mark.parametrize("seed", range(4))
def test_a_killed_process_closes_its_connections_and_listens_no_more(play, seed: int) -> None:
    async def story(pair) -> None:
        pair.sim.kill(pair.server_process)
        await asyncio.wait_for(pair.client.lost.wait(), 5)
        with pytest.raises(ConnectionRefusedError):
            await pair.connect()

    play(story, seed=seed)


def test_a_machine_without_power_says_nothing(play) -> None:
    async def story(pair) -> None:
        pair.sim.power_off("s")
        pair.client.transport.write(b"hello?")
        await pair.sim.elapse(3)
        assert not pair.client.lost.is_set()
        pair.sim.power_on("s")
        await asyncio.wait_for(pair.client.lost.wait(), 3)
        assert isinstance(pair.client.error, ConnectionResetError)
        with pytest.raises(ConnectionRefusedError):
            await pair.connect()

    play(story)
