"""Models of several senses write what the library's own calls give."""

from __future__ import annotations

import base64
import io
import json
from typing import Any

import numpy as np
import pytest
from payloads import png, sound, text, texts, wav
from tiny_generating_models import generating_model

from trireme.core.errors import ServingError
from trireme.testing import Request

pytestmark = pytest.mark.filterwarnings("ignore")

PROMPTS = ["Hello", "Once upon a time there was a server.", "What is the height of"]


def file_of(content: bytes) -> Any:
    return np.array([[content]], dtype=np.object_)


class Library:
    """Processor and model called directly: the pipeline of this task needs packages that are not required here."""

    def __init__(self, kind: str) -> None:
        transformers = pytest.importorskip("transformers")
        self.processor = transformers.AutoProcessor.from_pretrained(generating_model(kind))
        self.model = transformers.AutoModelForMultimodalLM.from_pretrained(generating_model(kind)).eval()

    def text(self, prompt: str, **given: Any) -> str:
        inputs = self.processor(text=prompt, return_tensors="pt", **given)
        ids = self.model.generate(**inputs, max_new_tokens=6, do_sample=False)
        new = ids[0, inputs["input_ids"].shape[1] :]
        return str(self.processor.tokenizer.decode(new, skip_special_tokens=True))


def test_sounds_are_heard_in_a_batch_as_alone(serve: Any) -> None:
    library = Library("qwen2audio")
    sounds = [sound(1), sound(2, 0.5), sound(3)]
    expected = [
        library.text(f"<|AUDIO|>{prompt}", audio=[samples]) for prompt, samples in zip(PROMPTS, sounds, strict=True)
    ]
    model = serve(generating_model("qwen2audio"), max_new_tokens=6)
    requests = [
        {"text_input": text(prompt), "audio": file_of(wav(samples))}
        for prompt, samples in zip(PROMPTS, sounds, strict=True)
    ]
    requests.append({"text_input": text(PROMPTS[0])})
    answers = [texts(result["text_output"])[0] for result in model.infer_many(requests)]
    assert answers == [*expected, library.text(PROMPTS[0])]
    assert len(set(answers)) == len(answers)


def test_a_message_may_be_a_sound(serve: Any) -> None:
    library, samples = Library("qwen2audio"), sound(1)
    expected = library.text("user: <|AUDIO|>What is it?assistant:", audio=[samples])
    model = serve(generating_model("qwen2audio"), max_new_tokens=6, chat="true")
    data = base64.b64encode(wav(samples)).decode()
    for part in (
        {"type": "input_audio", "input_audio": {"data": data, "format": "wav"}},
        {"type": "audio", "audio": data},
    ):
        content = [part, {"type": "text", "text": "What is it?"}]
        answer = model.infer(messages=text(json.dumps([{"role": "user", "content": content}])))
        assert texts(answer["text_output"]) == [expected]


def test_images_are_seen_under_this_name_too(serve: Any) -> None:
    from PIL import Image

    library = Library("llava")
    expected = library.text("<image>Hello", images=[Image.open(io.BytesIO(png(1))).convert("RGB")])
    model = serve(generating_model("llava"), task="any-to-any", max_new_tokens=6)
    answer = model.infer(text_input=text("Hello"), image=file_of(png(1)))
    assert texts(answer["text_output"]) == [expected]
    streamed = serve(generating_model("llava"), task="any-to-any", max_new_tokens=6, stream="true")
    pieces = streamed.stream(text_input=text("Hello"), image=file_of(png(1)))
    assert "".join(texts(piece["text_output"])[0] for piece in pieces) == expected
    assert len(pieces) > 2


@pytest.mark.parametrize(
    ("inputs", "options", "message"),
    [
        ({"text_input": text("a")}, {"generation_mode": "audio"}, "'generation_mode' must be text for this model"),
        ({"text_input": text("a"), "image": file_of(png(1))}, {}, "the model does not take images"),
        ({"text_input": text("a"), "audio": file_of(b"noise")}, {}, "input 'audio' .* is not a WAV file"),
        ({"text_input": text("<|AUDIO|> a")}, {}, "1 times the audio placeholder"),
        ({"audio": file_of(wav(sound(1)))}, {}, "input 'text_input' is missing"),
    ],
)
def test_what_is_wrong_is_the_error_of_its_request_alone(
    serve: Any, inputs: dict[str, Any], options: dict[str, Any], message: str
) -> None:
    model = serve(generating_model("qwen2audio"), max_new_tokens=2)
    good, bad = model.infer_many([Request({"text_input": text("Hello")}), Request(inputs, parameters=options)])
    assert texts(good["text_output"])[0]
    with pytest.raises(ServingError, match=message):
        bad.check()
