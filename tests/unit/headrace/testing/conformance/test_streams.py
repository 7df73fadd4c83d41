from headrace.testing.conformance.streams import conformance_serializer, rejected, stream


def test_the_serializer_knows_the_streams() -> None:
    serializer = conformance_serializer()
    for original in (stream("a", 1), stream("a", 2, "c", text="ä"), rejected("a", "c")):
        assert serializer.decode_stream(serializer.encode_stream(original)) == original


def test_a_command_id_is_made_of_the_version() -> None:
    assert stream("a", 7).command_id == "command-7"
    assert stream("a", 7, "mine").command_id == "mine"
