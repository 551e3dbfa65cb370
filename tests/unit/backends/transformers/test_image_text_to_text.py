"""What a model writes about an image equals the library's, for each prompt alone, whatever else is in the batch."""

from __future__ import annotations

import base64
import io
import json
from typing import Any

import numpy as np
import pytest
from payloads import text, texts
from tiny_generating_models import generating_model

from trireme.core.errors import ServingError
from trireme.testing import Request

pytestmark = pytest.mark.filterwarnings("ignore")


def shaded(seed: int, height: int = 48, width: int = 40) -> bytes:
    """Noise that differs from that of other seeds as a whole."""
    from PIL import Image

    pixels = np.random.default_rng(seed).integers(0, 64, (height, width, 3), dtype=np.uint8)
    pixels += np.array([[[60 * seed, 180 - 50 * seed, 90 * (seed % 2)]]], dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


PICTURES = [shaded(0), shaded(1, 30, 60), shaded(2), shaded(3)]
PROMPTS = ["Hello", "Once upon a time there was a server.", "What is the height of", "I am"]
SENTENCES = ["the ship", "what is the captain of this ship", "the sea is big", "a storm"]


def file_of(*contents: bytes) -> Any:
    return np.array([[content] for content in contents], dtype=np.object_)


def picture(content: bytes) -> Any:
    from PIL import Image

    return Image.open(io.BytesIO(content)).convert("RGB")


@pytest.fixture(scope="module")
def pipelines() -> Any:
    """The library's pipeline of a kind, made once."""
    transformers = pytest.importorskip("transformers")
    made: dict[str, Any] = {}

    def pipeline(kind: str) -> Any:
        if kind not in made:
            made[kind] = transformers.pipeline("image-text-to-text", model=str(generating_model(kind)))
        return made[kind]

    return pipeline


def written(pipeline: Any, prompt: Any, content: bytes | None = None, **options: Any) -> str:
    """What the library writes; a conversation brings its images."""
    given = {} if content is None else {"images": picture(content)}
    options = {"max_new_tokens": 6, **options}
    found: str = pipeline(**given, text=prompt, return_full_text=False, generate_kwargs=options)[0]["generated_text"]
    return found


@pytest.mark.parametrize("kind", ["llava", "idefics3", "blip", "blip2"])
@pytest.mark.parametrize("beams", [1, 2])
def test_a_batch_gives_each_image_its_own_text(serve: Any, pipelines: Any, kind: str, beams: int) -> None:
    prompts = SENTENCES if kind == "blip" else PROMPTS
    placeholder = "<image>" if kind in ("llava", "idefics3") else ""
    expected = [
        written(pipelines(kind), placeholder + prompt, content, num_beams=beams)
        for prompt, content in zip(prompts, PICTURES, strict=True)
    ]
    model = serve(generating_model(kind), max_new_tokens=6, num_beams=beams)
    results = model.infer_many(
        [
            {"image": file_of(content), "text_input": text(prompt)}
            for prompt, content in zip(prompts, PICTURES, strict=True)
        ]
    )
    assert [texts(result["text_output"])[0] for result in results] == expected
    assert len(set(expected)) == len(prompts)


def test_a_model_that_sees_padding_gets_none(serve: Any) -> None:
    """GIT counts positions from the first token, so that padding would change what it writes."""
    model = serve(generating_model("git"), max_new_tokens=6)
    requests = [
        {"image": file_of(content), "text_input": text(sentence)}
        for sentence, content in zip(SENTENCES, PICTURES, strict=True)
    ]
    together = [texts(result["text_output"])[0] for result in model.infer_many(requests)]
    assert together == [texts(model.infer(request)["text_output"])[0] for request in requests]
    assert len(set(together)) > 2


@pytest.mark.parametrize("kind", ["git", "blip", "captioner"])
def test_an_image_alone_gets_a_caption(serve: Any, kind: str) -> None:
    transformers = pytest.importorskip("transformers")
    folder = generating_model(kind)
    images = transformers.AutoImageProcessor.from_pretrained(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    library = transformers.AutoModelForImageTextToText.from_pretrained(folder).eval()
    expected = []
    for content in PICTURES:
        pixels = images(picture(content), return_tensors="pt")["pixel_values"]
        ids = library.generate(pixel_values=pixels, max_new_tokens=6, do_sample=False)[0]
        expected.append(tokenizer.decode(ids, skip_special_tokens=True))
    model = serve(folder, max_new_tokens=6, task="image-to-text")
    results = model.infer_many([{"image": file_of(content)} for content in PICTURES])
    assert [texts(result["text_output"])[0] for result in results] == expected
    assert kind == "blip" or len(set(expected)) > 1  # whose weights make little of an image alone


def test_a_chat_has_images_where_its_messages_say(serve: Any, pipelines: Any) -> None:
    """As data: addresses, as base64, or in the input `image`; the same words in all of them."""
    encoded = base64.b64encode(PICTURES[0]).decode()
    address = f"data:image/png;base64,{encoded}"
    question = {"type": "text", "text": "What is this?"}
    parts = [
        {"type": "image_url", "image_url": {"url": address}},
        {"type": "image", "image": encoded},
        {"type": "image", "url": address},
        {"type": "image"},
    ]
    begin = {"role": "system", "content": "Be short."}
    chats = [[begin, {"role": "user", "content": [part, question]}] for part in parts]
    library_begin = {"role": "system", "content": [{"type": "text", "text": "Be short."}]}
    library = [library_begin, {"role": "user", "content": [{"type": "image", "image": picture(PICTURES[0])}, question]}]
    expected = written(pipelines("llava"), library)
    model = serve(generating_model("llava"), chat="true", max_new_tokens=6)
    names = {entry["name"] for entry in model.config["input"] if entry.get("optional")}
    assert names == {"messages", "text_input", "image", "images", "stop"}
    requests = [{"messages": text(json.dumps(chat))} for chat in chats]
    requests[-1]["image"] = file_of(PICTURES[0])
    answers = [texts(result["text_output"])[0] for result in model.infer_many(requests)]
    assert answers == [expected] * len(parts)
    single = [{"role": "user", "content": [{"type": "image", "image": picture(PICTURES[1])}, question]}]
    answer = model.infer(text_input=text("What is this?"), image=file_of(PICTURES[1]))
    assert texts(answer["text_output"]) == [written(pipelines("llava"), single)]


def test_an_answer_that_is_begun_is_gone_on_with(serve: Any, pipelines: Any) -> None:
    chat = [
        {"role": "user", "content": [{"type": "text", "text": "Who are you?"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "I am"}]},
    ]
    expected = written(pipelines("llava"), json.loads(json.dumps(chat)))
    model = serve(generating_model("llava"), chat="true", max_new_tokens=6)
    assert texts(model.infer(messages=text(json.dumps(chat)))["text_output"]) == [expected]


@pytest.mark.parametrize("kind", ["llava", "idefics3"])
def test_several_images_belong_to_one_prompt(serve: Any, pipelines: Any, kind: str) -> None:
    pictures = [picture(content) for content in PICTURES[:2]]
    options = {"max_new_tokens": 6}
    prompt = "<image> and <image>: which?"
    found = pipelines(kind)(images=[pictures], text=[prompt], return_full_text=False, generate_kwargs=options)
    expected = (found[0][0] if isinstance(found[0], list) else found[0])["generated_text"]
    encoded = np.array([[base64.b64encode(content) for content in PICTURES[:2]]], dtype=np.object_)
    model = serve(generating_model(kind), max_new_tokens=6)
    both, one = model.infer_many(
        [
            {"images": encoded, "text_input": text(prompt)},
            {"image": file_of(PICTURES[0]), "text_input": text("Hello")},
        ]
    )
    assert texts(both["text_output"]) == [expected]
    assert texts(one["text_output"]) == [written(pipelines(kind), "<image>Hello", PICTURES[0])]
    arrays = np.stack([np.asarray(entry.resize((40, 48))) for entry in pictures])[None]
    of_arrays = serve(
        generating_model(kind),
        'input { name: "image" data_type: TYPE_UINT8 dims: [ -1, -1, -1, 3 ] } '
        'input { name: "text_input" data_type: TYPE_STRING dims: [ 1 ] }',
        max_new_tokens=6,
    )
    assert texts(of_arrays.infer(image=arrays, text_input=text(prompt))["text_output"])[0]


def test_a_prompt_without_an_image_is_continued_as_text(serve: Any, pipelines: Any) -> None:
    model = serve(generating_model("llava"), max_new_tokens=6)
    requests = [{"text_input": text(prompt)} for prompt in PROMPTS]
    requests.append({"text_input": text("Hello"), "image": file_of(PICTURES[0])})
    answers = [texts(result["text_output"])[0] for result in model.infer_many(requests)]
    assert answers[:-1] == [written(pipelines("llava"), prompt) for prompt in PROMPTS]
    assert answers[-1] != answers[0]


def test_a_stream_has_the_whole_text_in_pieces(serve: Any, pipelines: Any) -> None:
    whole = written(pipelines("llava"), "<image>Hello", PICTURES[0], max_new_tokens=8)
    model = serve(generating_model("llava"), max_new_tokens=8, stream="true")
    inputs = {"text_input": text("Hello"), "image": file_of(PICTURES[0])}
    pieces = [texts(result["text_output"])[0] for result in model.stream(Request(inputs))]
    assert "".join(pieces) == whole
    assert len(pieces) > 4
    stop = whole.split()[3]
    stopped = model.stream(Request(inputs, parameters={"stop": stop}))
    assert "".join(texts(result["text_output"])[0] for result in stopped) == whole[: whole.index(stop)]
    full = model.stream(Request(inputs, parameters={"return_full_text": True}))
    assert "".join(texts(result["text_output"])[0] for result in full) == "Hello" + whole
    assert model.stream(Request(inputs, is_cancelled=True)) == []


def test_a_seed_gives_the_same_sample_in_any_company(serve: Any) -> None:
    model = serve(generating_model("llava"), max_new_tokens=6, temperature=5.0)
    inputs = {"text_input": text("Hello"), "image": file_of(PICTURES[0])}
    alone = model.infer(Request(inputs, parameters={"seed": 7}))
    *_, together = model.infer_many([Request(inputs), Request(inputs), Request(inputs, parameters={"seed": 7})])
    assert texts(together["text_output"]) == texts(alone["text_output"])


def test_padding_is_no_repetition(serve: Any, pipelines: Any) -> None:
    options = {"repetition_penalty": 1.5}
    model = serve(generating_model("llava"), max_new_tokens=6, **options)
    requests = [{"text_input": text(prompt), "image": file_of(PICTURES[0])} for prompt in PROMPTS]
    answers = [texts(result["text_output"])[0] for result in model.infer_many(requests)]
    assert answers == [written(pipelines("llava"), f"<image>{prompt}", PICTURES[0], **options) for prompt in PROMPTS]


WEB = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}]}


@pytest.mark.parametrize(
    ("kind", "is_chat", "inputs", "message"),
    [
        ("llava", False, {"text_input": text("<image><image> a"), "image": file_of(PICTURES[0])}, "2 times the image"),
        ("llava", False, {"text_input": text("<image> a")}, "1 times the image placeholder '<image>'"),
        ("llava", False, {"image": file_of(PICTURES[0])}, "input 'text_input' is missing"),
        ("llava", False, {"text_input": text("a"), "image": file_of(b"no image")}, "could not be read as an image"),
        ("llava", False, {"text_input": text("Hello " * 300), "image": file_of(PICTURES[0])}, "cannot be cut"),
        ("captioner", False, {"text_input": text("a")}, "takes one image, and the request has 0"),
        ("blip", False, {"text_input": text("a")}, "input 'image' is missing: this model writes about an image"),
        ("llava", True, {"messages": text(json.dumps([WEB]))}, "https://example.org/a.png.* fetches nothing"),
        ("llava", True, {"messages": text('[{"role": "user", "content": [{"type": "image"}]}]')}, "without content"),
        ("llava", True, {"messages": text('[{"role": "user", "content": [{"type": "video"}]}]')}, "parts of the types"),
        ("llava", True, {"messages": text('[{"role": "user", "content": [3]}]')}, "parts of the types"),
        (
            "llava",
            True,
            {"messages": text('[{"role": "user", "content": "a"}]'), "image": file_of(PICTURES[0])},
            "more in its input 'image' than 'messages' has parts",
        ),
        (
            "llava",
            True,
            {"messages": text('[{"role": "user", "content": [{"type": "audio", "audio": "AAAA"}]}]')},
            "the model does not take sound",
        ),
    ],
)
def test_what_is_wrong_is_the_error_of_its_request_alone(
    served: Any, kind: str, is_chat: bool, inputs: dict[str, Any], message: str
) -> None:
    model = served(generating_model(kind), chat=str(is_chat).lower(), max_new_tokens=2)
    good = {"text_input": text("Hello")} if kind == "llava" else {"image": file_of(PICTURES[1])}
    fine, bad = model.infer_many([good, inputs])
    assert texts(fine["text_output"])[0]
    with pytest.raises(ServingError, match=message):
        bad.check()


def test_a_model_without_a_chat_template_cannot_chat(serve: Any) -> None:
    with pytest.raises(ServingError, match="has no chat template, which the parameter 'chat' needs"):
        serve(generating_model("blip"), chat="true")


def test_a_question_about_an_image_has_a_name_of_its_own(serve: Any, pipelines: Any) -> None:
    model = serve(generating_model("blip2"), task="visual-question-answering", max_new_tokens=6)
    answer = model.infer(image=file_of(PICTURES[0]), text_input=text("Hello"))
    assert texts(answer["text_output"]) == [written(pipelines("blip2"), "Hello", PICTURES[0])]
