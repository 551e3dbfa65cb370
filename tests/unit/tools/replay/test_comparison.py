"""When two answers are the same, and what is told where they are not."""

from __future__ import annotations

import json

import numpy as np
import pytest

from trireme.core.recorded_call import RecordedCall, RecordedResponse
from trireme.core.tensor import Tensor
from trireme.tools.client.messages import InferAnswer
from trireme.tools.replay.comparison import Verdict, compare, recorded_answer
from trireme.tools.replay.options import CompareOptions
from trireme.tools.replay.sending import Reply, call_again
from trireme.tools.replay.values import difference

USUAL = CompareOptions()


def array(values: object, datatype: str = "<f4") -> Tensor:
    return Tensor.from_numpy("O", np.array(values, np.dtype(datatype)))


def text(*elements: str) -> Tensor:
    return Tensor.from_numpy("O", np.array([element.encode() for element in elements], np.object_))


def recorded(*responses: Tensor, **fields: object) -> RecordedCall:
    return RecordedCall(0, "m", responses=tuple(RecordedResponse(1, (tensor,)) for tensor in responses), **fields)  # type: ignore[arg-type]


def reply(*responses: Tensor, error: str | None = None, is_unreachable: bool = False) -> Reply:
    return Reply(tuple(InferAnswer("m", "1", (tensor,)) for tensor in responses), 1, 1, error, is_unreachable)


def verdict(before: RecordedCall, now: Reply, options: CompareOptions = USUAL) -> tuple[Verdict, tuple[str, ...]]:
    found = compare(recorded_answer(before), now, options)
    return found.verdict, found.details


@pytest.mark.parametrize(
    ("before", "now", "told"),
    [
        (array([1.0, 2.0]), array([1.0, 2.0]), None),
        (array([1.0, 2.0]), array([1.00001, 2.0]), None),
        (array([0.0]), array([1e-7]), None),
        (array([np.nan, np.inf, 1.0]), array([np.nan, np.inf, 1.00001]), None),
        (array([[1.0, 2.0]]), array([[1.0, 2.1]]), "1 of 2 values, the first at [0, 1]: 2 became 2.1; by 0.1 at most"),
        (array([1.0]), array([np.nan]), "1 of 1 values, the first at [0]: 1 became nan; by nan at most"),
        (array([1.0], "<f2"), array([1.005], "<f2"), None),
        (array([1, 2], "<i4"), array([1, 3], "<i4"), "1 of 2 values, the first at [1]: 2 became 3"),
        (array([1, 2], "<i4"), array([1.0, 2.0]), "INT32 became FP32"),
        (array([1, 2], "<i4"), array([[1, 2]], "<i4"), "shape [2] became [1, 2]"),
        (text("a", "b"), text("a", "c"), "at [1]: 'b' became 'c'"),
        (text("x" * 99), text("y"), f"at [0]: '{'x' * 60}...' became 'y'"),
    ],
)
@pytest.mark.filterwarnings("ignore:All-NaN")
def test_differences_of_tensors(before: Tensor, now: Tensor, told: str | None) -> None:
    assert difference(before, now, USUAL) == told


def test_tolerances_can_be_set() -> None:
    assert difference(array([1.0]), array([1.00001]), CompareOptions(relative=0.0, absolute=0.0)) is not None
    assert difference(array([1.0]), array([1.4]), CompareOptions(absolute=0.5)) is None
    wide = Tensor("O", "BF16", (1,), b"\x80\x3f")
    assert difference(wide, Tensor("O", "BF16", (1,), b"\x81\x3f"), USUAL) is None
    assert difference(wide, Tensor("O", "BF16", (1,), b"\x00\x40"), USUAL) is not None


def test_json_in_texts_is_compared_by_its_members() -> None:
    before = json.dumps({"id": "a", "created": 1, "choices": [{"text": "x", "score": 0.5}]})
    after = json.dumps({"created": 9, "choices": [{"score": 0.500001, "text": "x"}], "id": "b"})
    assert difference(text(before), text(after), USUAL) is None
    assert difference(text(before), text(after.replace('"x"', '"y"')), USUAL) is not None
    assert difference(text('{"a": 1}'), text('{"a": true}'), USUAL) is not None
    assert difference(text('{"a": 1}'), text('{"b": 1}'), USUAL) is not None
    own = CompareOptions(ignored_keys=frozenset(("nonce",)))
    assert difference(text('{"nonce": 1}'), text('{"nonce": 2}'), own) is None
    deep = "[" * 100_000
    assert difference(text(deep + "1"), text(deep + "2"), USUAL) is not None


def test_verdicts() -> None:
    one, two = array([1.0]), array([2.0])
    failed = RecordedCall(0, "m", responses=(RecordedResponse(1, error="[request id: a] no", error_kind="Internal"),))
    assert verdict(recorded(one), reply(one)) == (Verdict.SAME, ())
    assert verdict(recorded(one), reply(two))[0] is Verdict.DIFFERS
    assert verdict(recorded(one), reply(error="no")) == (Verdict.FAILS, ("no",))
    assert verdict(failed, reply(one)) == (Verdict.RECOVERED, ("[request id: a] no",))
    assert verdict(failed, reply(error="[request id: b] no"))[0] is Verdict.SAME_ERROR
    assert verdict(failed, reply(error="other"))[0] is Verdict.OTHER_ERROR
    assert verdict(recorded(one, has_answer=False), reply(two)) == (Verdict.UNCOMPARED, ())
    assert verdict(recorded(one, is_finished=False), reply(two)) == (Verdict.UNCOMPARED, ())
    assert verdict(recorded(is_cut=True), reply(two)) == (Verdict.UNCOMPARED, ())
    assert verdict(recorded(one, has_answer=False), reply(error="no")) == (Verdict.FAILS, ("no",))
    assert verdict(recorded(one), reply(error="gone", is_unreachable=True)) == (Verdict.UNANSWERED, ("gone",))


def test_streams_are_compared_response_by_response() -> None:
    one, two, three = array([1.0]), array([2.0]), array([3.0])
    assert verdict(recorded(one, two), reply(one, two))[0] is Verdict.SAME
    assert verdict(recorded(one, two), reply(one)) == (Verdict.DIFFERS, ("2 responses became 1",))
    found, details = verdict(recorded(one, two), reply(one, three))
    assert found is Verdict.DIFFERS
    assert details[0].startswith("response 2: output 'O': 1 of 1 values")
    assert verdict(recorded(one, is_cut=True), reply(one, two))[0] is Verdict.SAME


def test_a_stream_that_was_recorded_in_part_is_answered_by_no_less() -> None:
    one, two = array([1.0]), array([2.0])
    cut = recorded(one, two, is_cut=True)
    assert verdict(cut, reply(one, two, one))[0] is Verdict.SAME
    assert verdict(cut, reply(one)) == (Verdict.DIFFERS, ("2 responses and more became 1",))
    assert verdict(cut, reply()) == (Verdict.DIFFERS, ("2 responses and more became 0",))
    texts = recorded(text("ab"), text("c"), is_cut=True)
    assert verdict(texts, reply(text("abcd")))[0] is Verdict.SAME
    assert verdict(texts, reply(text("a"), text("bcd"), text("e")))[0] is Verdict.SAME
    assert verdict(texts, reply(text("ab")))[0] is Verdict.DIFFERS
    assert verdict(texts, reply(text("a"), text("d"), text("e")))[0] is Verdict.DIFFERS


def test_a_text_in_other_pieces_is_the_same_text() -> None:
    assert verdict(recorded(text("ab"), text("c")), reply(text("a"), text("bc")))[0] is Verdict.SAME
    assert verdict(recorded(text("ab"), text("c")), reply(text("abc")))[0] is Verdict.SAME
    assert verdict(recorded(text("ab"), text("c")), reply(text("abd")))[0] is Verdict.DIFFERS


def test_marks_of_the_protocol_and_what_is_ignored_make_no_difference() -> None:
    tensor, other = array([1.0]), Tensor("NONCE", "INT32", (1,), b"1111")
    before = RecordedCall(
        0, "m", responses=(RecordedResponse(1, (tensor, other), {"sequence_id": 1, "k": 1}), RecordedResponse(2))
    )
    now = Reply((InferAnswer("m", "1", (tensor,), {"triton_final_response": True, "k": 2}),), 1, 1)
    assert verdict(before, now) == (
        Verdict.DIFFERS,
        ("output 'NONCE' is missing", "parameter 'k': 1 became 2"),
    )
    assert verdict(before, now, CompareOptions(ignored_outputs=frozenset(("NONCE", "k"))))[0] is Verdict.SAME


def test_the_request_is_sent_as_it_came() -> None:
    call = RecordedCall(
        0,
        "m",
        "2",
        request_id="r",
        inputs=(array([1.0]),),
        class_counts={"O": 3},
        parameters={"p": 1},
        correlation_id=7,
        is_start=True,
        priority=2,
        timeout_us=9,
    )
    again = call_again(call, "other", None)
    assert (again.model, again.version, again.request_id) == ("other", "2", "r")
    assert again.parameters == {
        "p": 1,
        "sequence_id": 7,
        "sequence_start": True,
        "sequence_end": False,
        "priority": 2,
        "timeout": 9,
    }
    assert (again.outputs, again.class_counts) == (("O",), {"O": 3})
    assert call_again(call, "m", "").version == ""
