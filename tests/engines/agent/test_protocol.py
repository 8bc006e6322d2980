"""The wire between server and agents: any cut of the stream, any garbage."""

import itertools

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.core.messages.orders import Acknowledge, SaveReplica, StopReplica
from penstock.engines.agent import protocol as p
from penstock.testing.builders import node
from tests.engines.agent.builders import KEY, Agent, start

TO_AGENT = (
    p.ServerWelcome(1, 2, 3, 4),
    p.ServerTaken(1, 2, 3, False),
    p.ServerRefused("no"),
    p.ServerOrders(1, 2, 3, (start(), StopReplica(KEY, 5), SaveReplica(KEY), Acknowledge(KEY))),
)
TO_SERVER = (p.AgentHello(1, node("a"), "i1"), Agent().report(5_000))


@pytest.mark.parametrize("message", TO_AGENT, ids=lambda m: type(m).__name__)
def test_what_the_server_says_arrives_as_it_was(message):
    assert [p.decode_to_agent(body) for body in p.Deframer().feed(p.frame(message))] == [message]


@pytest.mark.parametrize("message", TO_SERVER, ids=lambda m: type(m).__name__)
def test_what_an_agent_says_arrives_as_it_was(message):
    assert [p.decode_to_server(body) for body in p.Deframer().feed(p.frame(message))] == [message]


@given(cuts=st.lists(st.integers(0, 2_000)))
def test_messages_arrive_whole_however_the_stream_is_cut(cuts):
    stream = b"".join(map(p.frame, TO_AGENT))
    ends = sorted({min(c, len(stream)) for c in cuts} | {0, len(stream)})
    deframer = p.Deframer()
    found = [body for a, b in itertools.pairwise(ends) for body in deframer.feed(stream[a:b])]
    assert [p.decode_to_agent(body) for body in found] == list(TO_AGENT)


def test_a_frame_over_the_limit_is_refused_before_it_is_there():
    with pytest.raises(p.ProtocolError, match=f"over the limit of {p.FRAME_MAX_BYTES}"):
        p.Deframer().feed((p.FRAME_MAX_BYTES + 1).to_bytes(4, "big"))


def test_a_message_over_the_limit_is_not_sent(monkeypatch):
    monkeypatch.setattr(p, "FRAME_MAX_BYTES", 100)
    with pytest.raises(p.ProtocolError, match="over the limit of 100"):
        p.frame(p.ServerRefused("x" * 100))


@pytest.mark.parametrize("body", [b"", b"\x00", b"\xc1", msgspec.msgpack.encode({"type": "Nothing"}), b"{}"])
@pytest.mark.parametrize("decode", [p.decode_to_agent, p.decode_to_server])
def test_what_is_no_message_is_a_protocol_error(decode, body):
    with pytest.raises(p.ProtocolError):
        decode(body)


def test_a_message_of_the_other_side_is_a_protocol_error():
    with pytest.raises(p.ProtocolError):
        p.decode_to_server(p.frame(TO_AGENT[0])[4:])


@pytest.mark.parametrize("decode", [p.decode_to_agent, p.decode_to_server])
def test_text_that_is_no_utf8_is_a_protocol_error(decode):
    body = p.frame(TO_AGENT[2] if decode is p.decode_to_agent else TO_SERVER[0])[4:]
    with pytest.raises(p.ProtocolError):
        decode(body.replace(b"\xa2no", b"\xa2\xff\xff").replace(b"\xa2i1", b"\xa2\xff\xff"))


@given(body=st.binary(max_size=200), at=st.integers(0, 300), flip=st.integers(1, 127))
@example(body=b"\x91" * 100_000, at=0, flip=1)
def test_any_bytes_are_a_message_or_a_protocol_error(body, at, flip):
    whole = bytearray(p.frame(TO_AGENT[3])[4:])
    whole[at % len(whole)] ^= flip
    for candidate in (body, bytes(whole)):
        try:
            decoded = p.decode_to_agent(candidate)
        except p.ProtocolError:
            continue
        assert isinstance(decoded, p.ToAgent)
