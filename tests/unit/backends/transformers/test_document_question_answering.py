"""Questions about documents: words with their places, pages that a model looks at, and answers that it writes."""

from __future__ import annotations

import io
import json
import sys
import types
from typing import Any

import numpy as np
import pytest
from documents import LONG, QUESTION, WORDS, boxes_of, document, page
from payloads import png, text, texts
from tiny_multimodal_models import multimodal_model

from trireme.core.errors import ErrorKind, ServingError
from trireme.testing import Request

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def library() -> Any:
    return pytest.importorskip("transformers")


def picture(content: bytes) -> Any:
    from PIL import Image

    return Image.open(io.BytesIO(content)).convert("RGB")


def assert_answers(result: Any, expected: Any) -> None:
    assert texts(result["answer"]) == [entry["answer"] for entry in expected]
    np.testing.assert_allclose(result["score"][0], [entry["score"] for entry in expected], rtol=1e-3)
    for name in ("start", "end"):
        assert result[name][0].tolist() == [entry[name] for entry in expected]


def test_answers_among_words_equal_the_pipelines(serve: Any, library: Any) -> None:
    folder = multimodal_model("layoutlm")
    pipeline = library.pipeline("document-question-answering", model=str(folder))
    asked = [(WORDS, QUESTION), (LONG, "who lives in paris ?"), (WORDS[:3], QUESTION)]
    wishes: list[dict[str, Any]] = [{}, {"top_k": 4}, {"handle_impossible_answer": True, "top_k": 3}]
    requests = [
        Request(document(words, question), parameters=wish)
        for (words, question), wish in zip(asked, wishes, strict=True)
    ]
    for result, (words, question), wish in zip(serve(folder).infer_many(requests), asked, wishes, strict=True):
        boxes = list(zip(words, boxes_of(words), strict=True))
        assert_answers(result, pipeline(image=None, question=question, word_boxes=boxes, **wish))


def test_the_way_through_a_long_document_can_be_chosen(serve: Any, library: Any) -> None:
    folder = multimodal_model("layoutlm")
    wish = {"max_seq_len": 24, "doc_stride": 4, "max_answer_len": 2, "top_k": 5}
    pipeline = library.pipeline("document-question-answering", model=str(folder))
    boxes = list(zip(LONG, boxes_of(LONG), strict=True))
    expected = pipeline(image=None, question=QUESTION, word_boxes=boxes, **wish)
    assert_answers(serve(folder).infer(Request(document(LONG), parameters=wish)), expected)


def test_words_and_boxes_may_come_as_one_text(serve: Any) -> None:
    together = json.dumps(list(zip(WORDS, boxes_of(WORDS), strict=True)))
    apart, joined = serve(multimodal_model("layoutlm")).infer_many(
        [document(WORDS), Request({"question": text(QUESTION)}, parameters={"word_boxes": together})]
    )
    assert texts(joined["answer"]) == texts(apart["answer"])
    np.testing.assert_allclose(joined["score"], apart["score"], rtol=1e-5)


def test_documents_of_one_request_may_have_different_numbers_of_words(serve: Any) -> None:
    model = serve(multimodal_model("layoutlm"))
    alone = [model.infer(Request(document(words))) for words in (WORDS, WORDS[:5])]
    filled = {name: np.concatenate([part, part]) for name, part in document(WORDS).items()}
    filled["words"][1, 5:] = b""
    filled["boxes"][1, 5:] = 0
    both = model.infer(Request(filled))
    assert texts(both["answer"]) == [texts(result["answer"])[0] for result in alone]


def test_a_model_that_sees_the_page_gets_it(serve: Any, library: Any) -> None:
    """The library's pipeline hands the page on by a name that this model does not know, so it is the model that is
    compared with."""
    import torch

    folder = multimodal_model("layoutlmv3")
    words, boxes = WORDS[:6], boxes_of(WORDS[:6])
    model = library.LayoutLMv3ForQuestionAnswering.from_pretrained(folder).eval()
    tokenizer = library.AutoTokenizer.from_pretrained(folder)
    processor = library.AutoImageProcessor.from_pretrained(folder, apply_ocr=False)
    encoded = tokenizer([QUESTION], [words], boxes=[boxes], return_tensors="pt")
    is_word = torch.tensor([part == 1 for part in encoded.sequence_ids(0)])
    is_word[0] = True
    served = serve(folder)
    seeds = (1, 2)
    results = served.infer_many([{**document(words), "image": page(seed)} for seed in seeds])
    found = []
    for seed, result in zip(seeds, results, strict=True):
        pixels = processor(picture(png(seed)), return_tensors="pt")["pixel_values"]
        with torch.inference_mode():
            outputs = model(**encoded, pixel_values=pixels)
        count = len(is_word)
        starts, ends = (
            logits[0, :count].masked_fill(~is_word, -10000).softmax(-1)
            for logits in (outputs.start_logits, outputs.end_logits)
        )
        scores = torch.outer(starts, ends).triu().tril(14)
        scores[0] = scores[:, 0] = 0
        first, last = divmod(int(scores.argmax()), count)
        places = encoded.word_ids(0)
        expected = {
            "answer": " ".join(words[places[first] : places[last] + 1]),
            "score": float(scores.max()),
            "start": places[first],
            "end": places[last],
        }
        assert_answers(result, [expected])
        found.append(float(result["score"][0, 0]))
    assert found[0] != found[1]


def test_written_answers_equal_the_pipelines(serve: Any, library: Any) -> None:
    folder = multimodal_model("donut")
    pipeline = library.pipeline(
        "document-question-answering",
        model=library.VisionEncoderDecoderModel.from_pretrained(folder).eval(),
        tokenizer=library.AutoTokenizer.from_pretrained(folder),
        image_processor=library.AutoImageProcessor.from_pretrained(folder),
    )
    asked = [(1, QUESTION), (2, "who lives in paris ?"), (3, QUESTION), (4, "what ?")]
    results = serve(folder).infer_many([{"image": page(seed), "question": text(question)} for seed, question in asked])
    answers = [texts(result["answer"])[0] for result in results]
    assert answers == [pipeline(image=picture(png(seed)), question=question)[0]["answer"] for seed, question in asked]
    assert len(set(answers)) > 1
    assert all(answers)
    assert results[0]["score"].shape == results[0]["start"].shape == (1, 0)


def test_the_length_of_a_written_answer_can_be_chosen(serve: Any) -> None:
    model = serve(multimodal_model("donut"))
    inputs = {"image": page(1), "question": text(QUESTION)}
    short, long, none = model.infer_many(
        [Request(inputs, parameters={"max_new_tokens": count}) for count in (4, 9, 100_000)]
    )
    assert 0 < len(texts(short["answer"])[0]) < len(texts(long["answer"])[0]) < len(texts(none["answer"])[0])


def test_words_are_read_by_tesseract_where_it_is_installed(serve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a stand-in for the program, which writes down what it was asked."""
    asked: list[tuple[Any, ...]] = []

    def image_to_data(image: Any, lang: str | None, output_type: str, config: str) -> dict[str, list[Any]]:
        asked.append((image.size, lang, output_type, config))
        count = len(WORDS)
        return {
            "text": ["", *WORDS, "  "],
            "left": [0, *range(0, 2 * count, 2), 0],
            "top": [0, *([5] * count), 0],
            "width": [40, *([2] * count), 1],
            "height": [48, *([10] * count), 1],
        }

    reader = types.ModuleType("pytesseract")
    reader.image_to_data = image_to_data  # type: ignore[attr-defined]
    reader.TesseractError = reader.TesseractNotFoundError = OSError  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pytesseract", reader)
    model = serve(multimodal_model("layoutlm"))
    wishes = {"lang": "eng+deu", "tesseract_config": "--psm 6"}
    read = model.infer(Request({"image": page(1), "question": text(QUESTION)}, parameters=wishes))
    assert asked == [((40, 48), "eng+deu", "dict", "--psm 6")]
    given = document(WORDS)
    given["boxes"] = np.array(
        [[[index * 2 * 1000 // 40, 5 * 1000 // 48, (index * 2 + 2) * 1000 // 40, 15 * 1000 // 48]]
         for index in range(len(WORDS))], dtype=np.int32,
    ).reshape(1, -1, 4)  # fmt: skip
    expected = model.infer(Request(given))
    assert texts(read["answer"]) == texts(expected["answer"])
    np.testing.assert_allclose(read["score"], expected["score"], rtol=1e-5)


def test_without_tesseract_the_sender_is_told_what_to_do(serve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pytesseract", None)
    good, bad = serve(multimodal_model("layoutlm")).infer_many(
        [document(WORDS), {"image": page(1), "question": text(QUESTION)}]
    )
    good.check()
    with pytest.raises(ServingError, match="pytesseract is not installed on the server; send the inputs 'words'") as e:
        bad.check()
    assert e.value.kind is ErrorKind.INVALID_ARGUMENT


def test_a_page_without_words_has_no_answers(serve: Any) -> None:
    empty, full = serve(multimodal_model("layoutlm")).infer_many([document([]), document(WORDS)])
    assert empty["answer"].shape == empty["score"].shape == (1, 0)
    assert full["answer"].shape == (1, 1)


@pytest.mark.parametrize(
    ("change", "parameters", "told"),
    [
        ({"boxes": None}, {}, "input 'words' is there and 'boxes' is missing"),
        ({"words": None}, {}, "input 'boxes' is there and 'words' is missing"),
        ({"words": text("ship")}, {}, "four numbers for each of the 1 words"),
        ({"boxes": np.full((1, len(WORDS), 4), 1001, np.int32)}, {}, "in thousandths of the page, from 0 to 1000"),
        ({"boxes": np.full((1, len(WORDS), 4), -1, np.int32)}, {}, "found -1 to -1"),
        ({"boxes": np.array([[[9, 9, 1, 1]] * len(WORDS)], np.int32)}, {}, "left, top, right and bottom"),
        ({"question": text(" ")}, {}, "input 'question' is empty"),
        ({"question": text("ship " * 80)}, {}, "which leaves no room for the document in 64"),
        ({}, {"top_k": 0}, "'top_k' must be at least 1, found 0"),
        ({}, {"max_answer_len": 0}, "'max_answer_len' must be at least 1, found 0"),
        ({}, {"doc_stride": -1}, "'doc_stride' must be at least 0, found -1"),
        ({"words": None, "boxes": None}, {}, "input 'image' is missing"),
        ({}, {"word_boxes": "[]"}, "'word_boxes' stands for the inputs 'words' and 'boxes'"),
        ({"words": None, "boxes": None}, {"word_boxes": '[["a", [1, 2, 3]]]'}, "'word_boxes' must be JSON such as"),
        ({"words": None, "boxes": None}, {"word_boxes": '{"a": 1}'}, "'word_boxes' must be JSON such as"),
        ({"words": None, "boxes": None, "image": page(1)}, {"lang": "../x"}, "'lang' must be languages of tesseract"),
        (
            {"words": None, "boxes": None, "image": page(1)},
            {"tesseract_config": "--user-words /etc/passwd"},
            "'tesseract_config' may hold --psm, --oem and --dpi",
        ),
    ],
)
def test_a_bad_request_is_told_so_and_its_neighbour_is_answered(
    serve: Any, change: dict[str, Any], parameters: dict[str, Any], told: str
) -> None:
    inputs = {name: value for name, value in {**document(WORDS), **change}.items() if value is not None}
    good, bad = serve(multimodal_model("layoutlm")).infer_many(
        [document(WORDS), Request(inputs, parameters=parameters)]
    )
    good.check()
    with pytest.raises(ServingError) as caught:
        bad.check()
    assert told in str(caught.value)
    assert caught.value.kind is ErrorKind.INVALID_ARGUMENT


@pytest.mark.parametrize(
    ("inputs", "parameters", "told"),
    [
        ({}, {"max_new_tokens": 0}, "'max_new_tokens' must be at least 1, found 0"),
        ({}, {"num_beams": 1000}, "'num_beams' must be from 1 to 128, found 1000"),
        ({"question": text("ship " * 60)}, {}, "and the model takes at most 47"),
        ({"image": np.array([[b"none"]], dtype=np.object_)}, {}, "could not be read as an image"),
        ({"image": page(1, width=5000, height=4)}, {}, "the image cannot be prepared for the model"),
    ],
)
def test_a_bad_request_for_a_written_answer_is_told_so(
    serve: Any, inputs: dict[str, Any], parameters: dict[str, Any], told: str
) -> None:
    inputs = {"image": page(1), "question": text(QUESTION), **inputs}
    with pytest.raises(ServingError, match=told) as caught:
        serve(multimodal_model("donut")).infer(Request(inputs, parameters=parameters))
    assert caught.value.kind is ErrorKind.INVALID_ARGUMENT
