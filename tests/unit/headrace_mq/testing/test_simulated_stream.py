"""One connection: a transport as asyncio promises it."""

from headrace_mq.testing.simulated_stream import HIGH_BYTES, WINDOW_BYTES

MANY = bytes(2 * (HIGH_BYTES + WINDOW_BYTES))


def test_written_bytes_arrive_before_the_close(play) -> None:
    async def story(pair) -> None:
        pair.client.transport.write(b"last words")
        pair.client.transport.close()
        pair.client.transport.write(b"too late")
        await pair.server.lost.wait()
        assert pair.server.data == b"last words"
        assert pair.server.ended
        assert pair.client.lost.is_set()
        assert pair.client.error is None

    play(story)


def test_one_direction_ends_alone_and_the_other_one_closes(play) -> None:
    async def story(pair) -> None:
        pair.client.transport.writelines([b"a", b"b"])
        assert pair.client.transport.can_write_eof()
        pair.client.transport.write_eof()
        await pair.client.lost.wait()
        assert pair.client.data == b"ab"

    play(story, echoes=True)


def test_an_abort_resets_the_other_side(play) -> None:
    async def story(pair) -> None:
        pair.client.transport.abort()
        assert pair.client.transport.is_closing()
        await pair.server.lost.wait()
        assert isinstance(pair.server.error, ConnectionResetError)
        assert pair.client.error is None

    play(story)


def test_a_slow_reader_pauses_the_writer(play) -> None:
    async def story(pair) -> None:
        pair.server.transport.pause_reading()
        assert not pair.server.transport.is_reading()
        pair.client.transport.write(MANY)
        assert pair.client.paused
        assert pair.client.transport.get_write_buffer_size() == len(MANY) - WINDOW_BYTES
        await pair.sim.elapse(10)
        assert pair.server.data == b""
        pair.server.transport.resume_reading()
        await pair.sim.elapse(10)
        assert pair.server.data == MANY
        assert not pair.client.paused
        assert pair.client.pauses == 1

    play(story)


def test_the_limit_of_the_buffer_can_be_set(play) -> None:
    async def story(pair) -> None:
        pair.server.transport.pause_reading()
        pair.client.transport.set_write_buffer_limits(high=len(MANY))
        pair.client.transport.write(MANY)
        assert not pair.client.paused

    play(story)


def test_a_writer_to_a_closed_side_gets_an_error(play) -> None:
    async def story(pair) -> None:
        pair.client.transport.pause_reading()
        pair.client.transport.close()
        await pair.client.lost.wait()
        pair.server.transport.write(b"hello?")
        await pair.server.lost.wait()
        assert pair.server.error is None or isinstance(pair.server.error, OSError)
        assert pair.client.data == b""

    play(story)


def test_a_simulated_transport_has_no_socket(play) -> None:
    async def story(pair) -> None:
        assert pair.client.transport.get_extra_info("socket") is None
        assert pair.client.transport.get_extra_info("peername") == ("s", 0)
        assert pair.client.transport.get_protocol() is pair.client

    play(story)


def test_a_ghost_is_not_heard(play) -> None:
    async def story(pair) -> None:
        transport = pair.client.transport
        pair.sim.kill(pair.client_process)
        transport.write(b"boo")
        await pair.server.lost.wait()
        assert pair.server.data == b""

    play(story)
