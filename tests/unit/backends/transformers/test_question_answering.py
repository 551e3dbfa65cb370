"""Answers are the best spans of the model's logits, over every window of the text, in whole words."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from payloads import text, texts
from tiny_task_models import task_model

from trireme.core.errors import ServingError
from trireme.testing import Request

pytestmark = pytest.mark.filterwarnings("ignore")

CASES = [
    ("where is the ship ?", "the ship is in the harbour at athens and the captain is in rome ."),
    ("who sails ?", "otto builds . anna sails to london ."),
    ("what is red ?", "the sail"),
]


def best_span(question: str, context: str, longest: int = 15) -> tuple[str, float, int, int]:
    """By trying every span of tokens."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    folder = task_model("bert-answers")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForQuestionAnswering.from_pretrained(folder).eval()
    inputs = tokenizer(question, context, return_tensors="pt")
    with torch.no_grad():
        output = model(**inputs)
    places = [index for index, part in enumerate(inputs.sequence_ids(0)) if part == 1]
    starts = output.start_logits[0, places].softmax(0).tolist()
    ends = output.end_logits[0, places].softmax(0).tolist()
    score, first, last = max(
        (starts[i] * ends[j], places[i], places[j])
        for i in range(len(places))
        for j in range(i, min(len(places), i + longest))
    )
    start = inputs.word_to_chars(0, inputs.word_ids(0)[first], 1).start
    end = inputs.word_to_chars(0, inputs.word_ids(0)[last], 1).end
    return context[start:end], score, start, end


def test_a_batch_of_questions_gives_each_its_best_span(serve: Any) -> None:
    model = serve(task_model("bert-answers"))
    results = model.infer_many([{"question": text(q), "context": text(c)} for q, c in CASES])
    for result, (question, context) in zip(results, CASES, strict=True):
        answer, score, start, end = best_span(question, context)
        assert texts(result["answer"]) == [answer]
        assert (result["start"].tolist(), result["end"].tolist()) == ([[start]], [[end]])
        np.testing.assert_allclose(result["score"], [[score]], rtol=1e-3)


def test_several_answers_come_in_the_order_of_their_scores(serve: Any) -> None:
    question, context = CASES[0]
    request = Request({"question": text(question), "context": text(context)}, parameters={"top_k": 3})
    result = serve(task_model("bert-answers")).infer(request)
    assert texts(result["answer"])[0] == best_span(question, context)[0]
    assert result["score"][0].tolist() == sorted(result["score"][0].tolist(), reverse=True)
    assert [context[a:b] for a, b in zip(result["start"][0], result["end"][0], strict=True)] == texts(result["answer"])


def test_a_context_longer_than_the_model_takes_is_read_in_windows(serve: Any) -> None:
    context = " ".join(f"the captain of ship {letter} lives in rome ." for letter in "abcdefghijklmnop")
    result = serve(task_model("bert-answers")).infer(question=text("who lives in rome ?"), context=text(context))
    start, end = int(result["start"][0, 0]), int(result["end"][0, 0])
    assert context[start:end] == texts(result["answer"])[0] != ""


def test_no_answer_is_an_answer_where_it_is_allowed(serve: Any) -> None:
    question, context = CASES[0]
    parameters = {"handle_impossible_answer": True, "top_k": 50}
    request = Request({"question": text(question), "context": text(context)}, parameters=parameters)
    assert "" in texts(serve(task_model("bert-answers")).infer(request)["answer"])


@pytest.mark.parametrize("stride", [0, 10, 55, 56, 57, 1000])
def test_windows_may_overlap_by_any_number_of_tokens(serve: Any, stride: int) -> None:
    context = " ".join(f"the captain of ship {letter} lives in rome ." for letter in "abcdefghijklmnop")
    inputs = {"question": text("who lives in rome ?"), "context": text(context)}
    result = serve(task_model("bert-answers")).infer(Request(inputs, parameters={"doc_stride": stride}))
    start, end = int(result["start"][0, 0]), int(result["end"][0, 0])
    assert context[start:end] == texts(result["answer"])[0] != ""


def test_a_stride_below_zero_is_refused(serve: Any) -> None:
    question, context = CASES[0]
    request = Request({"question": text(question), "context": text(context)}, parameters={"doc_stride": -1})
    with pytest.raises(ServingError, match="'doc_stride' must be at least 0, found -1"):
        serve(task_model("bert-answers")).infer(request)


def test_an_empty_question_is_refused(serve: Any) -> None:
    with pytest.raises(ServingError, match="neither 'question' nor 'context' may be empty"):
        serve(task_model("bert-answers")).infer(question=text(" "), context=text("the ship"))
