"""Answers of token models whose client takes its time."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from trireme.backends.python.pb_utils.errors import ErrorCode
from trireme.backends.token_model.answer_sender import SharedSender
from trireme.backends.token_model.family import EXECUTOR, INFLIGHT, SESSION
from trireme.backends.token_model.token_answer import TokenAnswer
from trireme.backends.token_model.token_request import Row, TokenRequest
from trireme.llm.request import FinishReason, SequenceOutput, TokenLogprobs
from trireme.llm.sampling_params import SamplingParams


class Client:
    """What the sender of a request does, with credits that the test gives; stands for the slow_streams as well."""

    def __init__(self, credit: int) -> None:
        self.credit = credit
        self.sent: list[tuple[list[int], int]] = []
        self.held: list[Any] = []

    def has_credit(self) -> bool:
        return self.credit > 0

    def send(self, response: Any = None, flags: int = 0) -> None:
        assert response is None or self.credit > 0 or response.has_error(), "it would wait here, and others with it"
        self.credit -= response is not None
        tensors = response.output_tensors() if response is not None else []
        self.sent.append((tensors[0].as_numpy().reshape(-1).tolist() if tensors else [], flags))

    def add(self, answer: Any) -> None:
        self.held.append(answer)


def begin(client: Any, slow_streams: Any = None) -> tuple[TokenAnswer, list[str]]:
    ended: list[str] = []
    row = Row([5], SamplingParams(max_tokens=4), (), (), 0)
    request = TokenRequest([row], 1, 1, True, False, False, frozenset(["output_ids"]))
    answer = TokenAnswer(
        request, INFLIGHT, {"output_ids": np.int32}, client, lambda number, reason: None, lambda: ended.append("end"),
        slow_streams or client, is_stream=True, has_prompt=False,
    )  # fmt: skip
    return answer, ended


def output_of(token: int, reason: FinishReason | None = None) -> SequenceOutput:
    return SequenceOutput((token,), (), reason)


def test_tokens_of_a_slow_client_are_kept_and_follow_in_order() -> None:
    client = Client(1)
    answer, ended = begin(client)
    for token, reason in ((7, None), (8, None), (9, FinishReason.LENGTH)):
        answer.take(answer.lanes[0], output_of(token, reason))
    assert (client.sent, client.held, ended) == ([([7], 0)], [answer], [])
    assert not answer.can_go_on()
    client.credit = 1
    assert answer.can_go_on()
    assert not answer.release()
    client.credit = 5
    assert answer.release()
    assert client.sent == [([7], 0), ([8], 0), ([9], 1)]
    assert ended == ["end"]


def test_an_answer_that_fails_meanwhile_is_let_go() -> None:
    client = Client(0)
    answer, ended = begin(client)
    answer.take(answer.lanes[0], output_of(7))
    answer.fail(RuntimeError("gone"), ErrorCode.INTERNAL)
    assert answer.can_go_on()
    assert answer.release()
    assert ended == ["end"]


def test_nothing_but_the_end_follows_a_stop_and_then_the_stop_is_answered() -> None:
    client = Client(1)
    answer, ended = begin(client)
    answer.take(answer.lanes[0], output_of(7))
    answer.take(answer.lanes[0], output_of(8))  # held back
    answer.stop(lambda: ended.append("answered"))
    assert (client.sent, ended, answer.can_go_on()) == ([([7], 0)], [], True)
    answer.take(answer.lanes[0], output_of(9, FinishReason.CANCELLED))
    assert answer.release()
    assert (client.sent, ended) == ([([7], 0), ([], 1)], ["end", "answered"])


def test_a_stop_behind_the_end_is_answered_at_once() -> None:
    answer, ended = begin(Client(9))
    answer.take(answer.lanes[0], output_of(7, FinishReason.LENGTH))
    answer.stop(lambda: ended.append("answered"))
    assert ended == ["end", "answered"]


def test_what_waits_for_its_beginning_can_be_stopped() -> None:
    client = Client(1)
    answer, ended = begin(client)
    answer.wait()
    answer.stop(lambda: ended.append("answered"))
    assert (client.sent, ended) == ([([], 1)], ["end", "answered"])
    assert not answer.begin(lambda: ended.append("begun"))


def test_what_waits_for_its_beginning_ends_where_its_client_leaves() -> None:
    client = Client(1)
    answer, ended = begin(client)
    answer.wait()
    answer.cancel()
    answer.cancel()
    assert not answer.begin(lambda: ended.append("begun"))
    assert (client.sent, ended) == ([([], 1)], ["end"])


def test_what_has_waited_is_stopped_like_all_others() -> None:
    client = Client(9)
    answer, ended = begin(client)
    answer.wait()
    assert answer.begin(lambda: ended.append("begun"))
    answer.stop(lambda: ended.append("answered"))
    assert ended == ["begun"]
    answer.take(answer.lanes[0], output_of(7, FinishReason.CANCELLED))
    assert (client.sent, ended) == ([([], 1)], ["begun", "end", "answered"])


def test_each_prompt_has_its_place_and_its_counts() -> None:
    names = ["batch_index", "sequence_index", "num_input_tokens", "num_output_tokens"]
    rows = [Row(tokens, SamplingParams(max_tokens=4), (), (), 0) for tokens in ([5], [5, 6, 7])]
    request = TokenRequest(rows, 3, 2, False, False, False, frozenset(names))
    kept: list[Any] = []
    client = cast(Any, SimpleNamespace(send=lambda response, flags: kept.append(response)))
    answer = TokenAnswer(
        request, EXECUTOR, dict.fromkeys(names, np.int32), client, lambda number, reason: None, lambda: None, client,
        is_stream=False, has_prompt=True,
    )  # fmt: skip
    for place, lane in enumerate(answer.lanes):
        for _ in range(place):
            answer.take(lane, output_of(9))
        answer.take(lane, output_of(9, FinishReason.LENGTH))
    found = {tensor.name(): tensor.as_numpy().tolist() for tensor in kept[0].output_tensors()}
    assert found == {
        "batch_index": [[0], [1]],
        "sequence_index": [[0], [0]],
        "num_input_tokens": [[1], [3]],
        "num_output_tokens": [[1 + 2], [3 + 4]],
    }


def test_answers_that_share_a_sender_end_the_request_together() -> None:
    client = Client(9)
    shared = SharedSender(cast(Any, client), 2)
    (one, ended), (other, others_ended) = begin(shared, client), begin(shared, client)
    one.take(one.lanes[0], output_of(7, FinishReason.LENGTH))
    assert (ended, others_ended, client.sent) == (["end"], [], [([7], 0)])
    one.fail(RuntimeError("too late"), ErrorCode.INTERNAL)
    other.take(other.lanes[0], output_of(8))
    other.take(other.lanes[0], output_of(9, FinishReason.LENGTH))
    assert (others_ended, client.sent) == (["end"], [([7], 0), ([8], 0), ([9], 1)])


def test_probabilities_of_the_python_model_have_the_tokens_before_the_beams() -> None:
    names = ["log_probs", "output_log_probs"]
    row = Row([5], SamplingParams(max_tokens=3), (), (), 0)
    request = TokenRequest([row], 1, 2, False, False, True, frozenset(names))
    kept: list[Any] = []
    client = cast(Any, SimpleNamespace(send=lambda response, flags: kept.append(response)))
    answer = TokenAnswer(
        request, SESSION, dict.fromkeys(names, np.float32), client, lambda number, reason: None, lambda: None, client,
        is_stream=False, has_prompt=True,
    )  # fmt: skip
    for place, lane in enumerate(answer.lanes):
        told = [TokenLogprobs(-float(place + number), 1) for number in (1, 3, 5)]
        answer.take(lane, SequenceOutput((7, 8, 9), tuple(told), FinishReason.LENGTH))
    found = {tensor.name(): tensor.as_numpy().tolist() for tensor in kept[0].output_tensors()}
    assert found["output_log_probs"] == [[[-1, -3, -5], [-2, -4, -6]]]
    assert found["log_probs"] == [[[-1, -2], [-3, -4], [-5, -6]]]
