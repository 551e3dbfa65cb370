"""Generated text equals the library's for each prompt alone, whatever else is in the batch."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from payloads import text, texts
from tiny_models import tiny_causal_lm
from tiny_task_models import task_model

from trireme.core.errors import PromptTooLongError, ServingError
from trireme.testing import Request

pytestmark = pytest.mark.filterwarnings("ignore")

PROMPTS = ["Hello", "Once upon a time there was a server.", "The quick brown fox jumps over", "I am"]


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_causal_lm(tmp_path_factory.mktemp("models") / "llama", "llama")


class Library:
    """A model called directly, one prompt at a time."""

    def __init__(self, folder: Path, auto_class: str = "AutoModelForCausalLM") -> None:
        transformers = pytest.importorskip("transformers")
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        self.model = getattr(transformers, auto_class).from_pretrained(folder).eval()

    def ids(self, prompt: str, **settings: Any) -> list[int]:
        inputs = self.tokenizer(prompt, return_tensors="pt")
        names = ("input_ids", "attention_mask")
        output = self.model.generate(**{name: inputs[name] for name in names}, pad_token_id=1, **settings)
        start = 1 if self.model.config.is_encoder_decoder else inputs["input_ids"].shape[1]
        return list(output[0, start:].tolist())

    def text(self, prompt: str, **settings: Any) -> str:
        found: str = self.tokenizer.decode(self.ids(prompt, **settings), skip_special_tokens=True)
        return found


@pytest.mark.parametrize("kind", ["llama", "gptneox", "opt", "falcon"])
def test_a_batch_gives_each_prompt_its_own_greedy_text(serve: Any, tmp_path: Path, kind: str) -> None:
    folder = tiny_causal_lm(tmp_path / "files", kind)
    library = Library(folder)
    model = serve(folder, max_new_tokens=8)
    results = model.infer_many([{"text_input": text(prompt)} for prompt in PROMPTS])
    expected = [library.text(prompt, max_new_tokens=8, do_sample=False) for prompt in PROMPTS]
    assert [texts(result["text_output"])[0] for result in results] == expected
    assert len(set(expected)) == len(PROMPTS)


def test_sequences_of_one_batch_end_at_different_times(serve: Any, llama: Path, tmp_path: Path) -> None:
    library = Library(llama)
    # The third token that the first prompt gives becomes an end token, so that its text ends before the others'.
    end = library.ids(PROMPTS[0], max_new_tokens=8, do_sample=False)[2]
    folder = tiny_causal_lm(tmp_path / "files", "llama")
    file = folder / "generation_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "eos_token_id": [0, end]}))
    library = Library(folder)
    expected = [library.text(prompt, max_new_tokens=8, do_sample=False) for prompt in PROMPTS]
    requests = [Request({"text_input": text(prompt)}, parameters={"max_new_tokens": 8}) for prompt in PROMPTS]
    # Limits of one's own do not keep requests apart.
    requests.append(Request({"text_input": text(PROMPTS[1])}, parameters={"max_new_tokens": 3}))
    results = serve(folder).infer_many(requests)
    answers = [texts(result["text_output"])[0] for result in results]
    assert answers == [*expected, library.text(PROMPTS[1], max_new_tokens=3, do_sample=False)]
    assert len(library.ids(PROMPTS[0], max_new_tokens=8, do_sample=False)) == 3


def test_stop_texts_end_a_text_before_them(served: Any, llama: Path) -> None:
    whole = Library(llama).text(PROMPTS[0], max_new_tokens=8, do_sample=False)
    stop = whole.split()[3]
    model = served(llama, max_new_tokens=8)
    plain, cut, listed = model.infer_many(
        [
            Request({"text_input": text(PROMPTS[0])}),
            Request({"text_input": text(PROMPTS[0])}, parameters={"stop": stop}),
            Request({"text_input": text(PROMPTS[0]), "stop": text(stop)}),
        ]
    )
    assert texts(plain["text_output"]) == [whole]
    assert texts(cut["text_output"]) == texts(listed["text_output"]) == [whole[: whole.index(stop)]]


def test_full_text_is_the_prompt_and_its_continuation(served: Any, llama: Path) -> None:
    model = served(llama, max_new_tokens=4)
    continuation = texts(model.infer(text_input=text("Hello"))["text_output"])[0]
    full = model.infer(Request({"text_input": text("Hello")}, parameters={"return_full_text": True}))
    assert texts(full["text_output"]) == ["Hello" + continuation]


def test_a_seed_gives_the_same_sample_in_any_company(served: Any, llama: Path) -> None:
    model = served(llama, max_new_tokens=8)
    sampled = {"seed": 7, "temperature": 5.0, "top_k": 1000}
    alone = model.infer(Request({"text_input": text(PROMPTS[1])}, parameters=sampled))
    others = [Request({"text_input": text(prompt)}, parameters={"temperature": 5.0}) for prompt in PROMPTS]
    together = model.infer_many([*others, Request({"text_input": text(PROMPTS[1])}, parameters=sampled)])
    greedy = model.infer(text_input=text(PROMPTS[1]))
    assert texts(together[-1]["text_output"]) == texts(alone["text_output"]) != texts(greedy["text_output"])
    cold = model.infer(Request({"text_input": text(PROMPTS[1])}, parameters={**sampled, "temperature": 0}))
    assert texts(cold["text_output"]) == texts(greedy["text_output"])


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"max_new_tokens": 0}, "'max_new_tokens' must be at least 1, found 0"),
        ({"max_new_tokens": "many"}, "'max_new_tokens' must be a whole number, found 'many'"),
        ({"top_p": 1.5}, "'top_p' must be above 0 and at most 1, found 1.5"),
        ({"do_sample": "perhaps"}, "'do_sample' must be true or false, found 'perhaps'"),
        ({"temperature": "inf"}, "'temperature' must be a finite number, found inf"),
        ({"repetition_penalty": "inf"}, "'repetition_penalty' must be a finite number, found inf"),
        ({"num_beams": 100_000}, "'num_beams' must be at most 128, found 100000"),
        ({"seed": 1 << 70, "temperature": 1.0}, f"'seed' must fit into 64 bits, found {1 << 70}"),
        ({"top_k": float("inf")}, "'top_k' must be a whole number, found inf"),
        ({"stop": "[" * 100_000}, f"'stop' must be a text, or a list of texts as JSON, found '{'[' * 79}..."),
        ({"min_new_tokens": 9}, "'min_new_tokens' is 9, and there may be 2 at most"),
        (
            {"num_return_sequences": 3},
            "'num_return_sequences' must be 1: send the prompt as often as there are to be answers",
        ),
    ],
)
def test_a_wrong_setting_is_the_error_of_its_request_alone(
    served: Any, llama: Path, parameters: dict[str, Any], message: str
) -> None:
    good, bad = served(llama, max_new_tokens=2).infer_many(
        [Request({"text_input": text("Hello")}), Request({"text_input": text("Hello")}, parameters=parameters)]
    )
    assert texts(good["text_output"])[0]
    assert bad.error is not None
    assert bad.error.message == message


def test_a_request_without_rows_is_refused_as_the_server_does(served: Any, llama: Path) -> None:
    model = served(llama, max_new_tokens=2)
    with pytest.raises(ServingError, match="expected 1 string elements for inference input 'text_input'"):
        model.infer(text_input=np.empty((0, 1), dtype=np.object_))
    model.infer(text_input=text("Hello")).check()


def test_a_temperature_next_to_zero_draws_the_likeliest_token(served: Any, llama: Path) -> None:
    model = served(llama, max_new_tokens=4)
    cold = model.infer(Request({"text_input": text("Hello")}, parameters={"temperature": 1e-40}))
    assert texts(cold["text_output"]) == texts(model.infer(text_input=text("Hello"))["text_output"])


@pytest.mark.parametrize("beams", [1, 2])
def test_padding_is_no_repetition(serve: Any, llama: Path, tmp_path: Path, beams: int) -> None:
    settings = {"max_new_tokens": 6, "repetition_penalty": 1.5, "num_beams": beams}
    library = Library(llama)
    # The token that the shortest prompt begins its answer with becomes the padding.
    token = library.tokenizer.convert_ids_to_tokens(library.ids(PROMPTS[0], **settings, do_sample=False)[0])
    folder = tiny_causal_lm(tmp_path / "files", "llama")
    file = folder / "tokenizer_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "pad_token": token}))
    library = Library(folder)
    assert library.ids(PROMPTS[0], **settings, do_sample=False)[0] == library.tokenizer.pad_token_id
    results = serve(folder, **settings).infer_many([{"text_input": text(prompt)} for prompt in PROMPTS])
    expected = [library.text(prompt, **settings, do_sample=False) for prompt in PROMPTS]
    assert [texts(result["text_output"])[0] for result in results] == expected


def test_a_prompt_beyond_the_context_is_refused_or_cut(serve: Any, llama: Path) -> None:
    model = serve(llama, max_new_tokens=2)
    with pytest.raises(PromptTooLongError, match=r"the prompt has \d+ tokens, and the model's context has room"):
        model.infer(text_input=text("Hello " * 2000))
    cut = model.infer(Request({"text_input": text("Hello " * 2000)}, parameters={"truncation": True}))
    assert texts(cut["text_output"])[0]
    # However much is asked for, half of the context remains the prompt's.
    long = "The quick brown fox jumps over the lazy dog. " * 200
    library = Library(llama)
    expected = library.text(library.tokenizer.decode(library.tokenizer(long)["input_ids"][-512:]), max_new_tokens=3)
    stop = expected.split()[-1]
    wishes = {"truncation": True, "max_new_tokens": 1 << 40, "stop": stop}
    answer = model.infer(Request({"text_input": text(long)}, parameters=wishes))
    assert texts(answer["text_output"]) == [expected[: expected.index(stop)]] != [""]
    with pytest.raises(ServingError, match="the prompt is empty"):
        model.infer(text_input=text(""))


def test_a_chat_template_makes_the_prompt(serve: Any, tmp_path: Path) -> None:
    folder = tiny_causal_lm(tmp_path / "files", "llama")
    template = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant:"
    file = folder / "tokenizer_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "chat_template": template}))
    model = serve(folder, chat="true", max_new_tokens=6)
    assert {entry["name"]: entry.get("optional") for entry in model.config["input"]} == {
        "messages": True,
        "text_input": True,
        "stop": True,
    }
    messages = [{"role": "system", "content": "Be short."}, {"role": "user", "content": "Where is the station?"}]
    expected = Library(folder).text("system: Be short.\nuser: Where is the station?\nassistant:", max_new_tokens=6)
    assert texts(model.infer(messages=text(json.dumps(messages)))["text_output"]) == [expected]
    expected = Library(folder).text("user: Hello\nassistant:", max_new_tokens=6)
    assert texts(model.infer(text_input=text("Hello"))["text_output"]) == [expected]
    parts: list[Any] = [{"role": "user", "content": [{"type": "text", "text": "Hello"}]}]
    assert texts(model.infer(messages=text(json.dumps(parts)))["text_output"]) == [expected]
    parts[0]["content"].append({"type": "image_url", "image_url": {"url": "data:,"}})
    with pytest.raises(ServingError, match="message 0 has a part of the type 'image_url', and the model takes texts"):
        model.infer(messages=text(json.dumps(parts)))
    for wrong in ("Hello", '{"role": "user"}', '["Hello"]', "[]", "[" * 100_000):
        with pytest.raises(ServingError, match="input 'messages' must be a JSON list such as"):
            model.infer(messages=text(wrong))


def test_a_stream_has_the_whole_text_in_pieces(serve: Any, llama: Path) -> None:
    whole = Library(llama).text(PROMPTS[0], max_new_tokens=8, do_sample=False)
    model = serve(llama, max_new_tokens=8, stream="true")
    assert model.config["model_transaction_policy"] == {"decoupled": True}
    pieces = [texts(result["text_output"])[0] for result in model.stream(text_input=text(PROMPTS[0]))]
    assert "".join(pieces) == whole
    assert len(pieces) > 4
    stop = whole.split()[3]
    stopped = model.stream(Request({"text_input": text(PROMPTS[0])}, parameters={"stop": stop}))
    assert "".join(texts(result["text_output"])[0] for result in stopped) == whole[: whole.index(stop)]
    (single,) = model.stream(Request({"text_input": text(PROMPTS[0])}, parameters={"stream": False}))
    assert texts(single["text_output"]) == [whole]


def test_a_cancelled_request_gets_nothing_and_the_others_all(serve: Any, llama: Path) -> None:
    model = serve(llama, max_new_tokens=8, stream="true")
    assert model.stream(Request({"text_input": text("Hello")}, is_cancelled=True)) == []
    assert model.stream(text_input=text("Hello"))


@pytest.mark.parametrize("beams", [1, 3])
@pytest.mark.parametrize("kind", ["bart", "t5"])
def test_encoders_with_decoders_write_what_the_library_writes(serve: Any, kind: str, beams: int) -> None:
    folder = task_model(kind)
    library = Library(folder, "AutoModelForSeq2SeqLM")
    settings = {"max_new_tokens": 8, "num_beams": beams}
    results = serve(folder, **settings).infer_many([{"text_input": text(prompt)} for prompt in PROMPTS])
    expected = [library.text(prompt, **settings, do_sample=False) for prompt in PROMPTS]
    assert [texts(result["text_output"])[0] for result in results] == expected


def test_a_model_whose_texts_have_no_end_is_not_told_to_write_for_ever(serve: Any) -> None:
    requests = [Request({"text_input": text("Hello")}, parameters={"max_new_tokens": limit}) for limit in (3, 10**9)]
    good, bad = serve(task_model("t5")).infer_many(requests)
    assert texts(good["text_output"])[0]
    with pytest.raises(ServingError, match="'max_new_tokens' must be at most 32768 for this model, found 1000000000"):
        bad.check()


def test_an_end_that_the_model_forces_comes_at_each_texts_own_limit(serve: Any, tmp_path: Path) -> None:
    folder = shutil.copytree(task_model("bart"), tmp_path / "files")
    file = folder / "generation_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "forced_eos_token_id": 0}))
    library = Library(folder, "AutoModelForSeq2SeqLM")
    requests = [Request({"text_input": text("Hello")}, parameters={"max_new_tokens": limit}) for limit in (3, 8)]
    answers = [texts(result["text_output"])[0] for result in serve(folder).infer_many(requests)]
    assert answers == [library.text("Hello", max_new_tokens=limit, do_sample=False) for limit in (3, 8)]


def test_a_translation_uses_the_words_and_the_length_that_the_model_says(serve: Any) -> None:
    folder = task_model("t5")
    library = Library(folder, "AutoModelForSeq2SeqLM")
    expected = library.text("translate English to German: " + PROMPTS[0], max_new_tokens=23)
    result = serve(folder, task="translation_en_to_de").infer(text_input=text(PROMPTS[0]))
    assert texts(result["text_output"]) == [expected]
    plain = serve(folder, task="summarization", max_new_tokens=23).infer(text_input=text(PROMPTS[0]))
    assert texts(plain["text_output"]) == [library.text(PROMPTS[0], max_new_tokens=23)]
