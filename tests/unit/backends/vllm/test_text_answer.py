"""Answers of Triton's vLLM backend whose client takes its time, or that cannot be sent."""

from __future__ import annotations

from typing import Any

from trireme.backends.served_engine import returned
from trireme.backends.vllm.text_answer import ChoiceDelta, TextAnswer
from trireme.backends.vllm.text_request import TextRequest


class Client:
    """What the sender of a request does, with credits that the test gives; stands for the slow_streams as well."""

    def __init__(self, credit: int) -> None:
        self.credit = credit
        self.sent: list[tuple[list[str], int]] = []
        self.held: list[Any] = []
        self.breaks = False

    def has_credit(self) -> bool:
        return self.credit > 0

    def send(self, response: Any, flags: int = 0) -> None:
        if self.breaks and not response.has_error():
            raise RuntimeError("no way out")
        if response.has_error():
            self.sent.append(([response.error().message()], flags))
            return
        self.credit -= 1
        found = {tensor.name(): tensor.as_numpy().tolist() for tensor in response.output_tensors()}
        self.sent.append(([text.decode() for text in found["text_output"]], flags))

    def add(self, answer: Any) -> None:
        self.held.append(answer)


def begin(client: Any, *, is_stream: bool, choices: int = 1) -> tuple[TextAnswer, list[str]]:
    ended: list[str] = []
    request = TextRequest("Hi", is_stream, not is_stream, {}, frozenset(returned.OUTPUTS))
    answer = TextAnswer(request, client, client, lambda: ended.append("end"))
    answer.begin(choices, 1)
    return answer, ended


def test_pieces_for_a_slow_client_are_joined() -> None:
    client = Client(1)
    answer, _ = begin(client, is_stream=True)
    for text in ("a", "b", "c"):
        answer.take([ChoiceDelta(0, text, 1)], False)
    assert (client.sent, client.held) == ([(["a"], 0)], [answer])
    answer.take([ChoiceDelta(0, "d", 1, finish_reason="stop")], True)
    assert not answer.can_go_on()
    client.credit = 1
    assert answer.release()
    assert client.sent == [(["a"], 0), (["bcd"], 1)]
    assert client.held == [answer]


def test_a_whole_answer_is_sent_once_with_all_its_choices() -> None:
    client = Client(1)
    answer, _ = begin(client, is_stream=False, choices=2)
    answer.take([ChoiceDelta(0, " a", 1)], False)
    answer.take([ChoiceDelta(1, " x", 1, finish_reason="stop")], False)
    answer.take([ChoiceDelta(0, " b", 1, finish_reason="length")], True)
    answer.take([ChoiceDelta(0, "too late", 1)], True)
    assert client.sent == [(["Hi a b", "Hi x"], 1)]


def test_an_answer_that_cannot_be_sent_ends_with_an_error() -> None:
    client = Client(1)
    client.breaks = True
    answer, ended = begin(client, is_stream=True)
    answer.take([ChoiceDelta(0, "a", 1)], False)
    assert client.sent == [(["the answer cannot be written: no way out"], 1)]
    assert ended == ["end"]
    assert answer.release()
