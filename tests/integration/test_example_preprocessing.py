"""The preprocessing models of the examples, with a tokenizer of a few hundred tokens."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_tokenizers import byte_level
from tokenizers import Regex, normalizers

from trireme.core.errors import ErrorKind, ServingError
from trireme.testing import LoadedModel, load_model

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
TOKENIZERS = {
    "gptneox": "preprocessing/1/20B_tokenizer.json",
    "falcon-7b-trt": "tensorrt_llm/1/falcon-7b/tokenizer.json",
}


@pytest.fixture(params=list(TOKENIZERS))
def preprocessing(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    folder = shutil.copytree(EXAMPLES / request.param / "preprocessing", tmp_path / "preprocessing")
    file = tmp_path / TOKENIZERS[request.param]
    file.parent.mkdir(parents=True, exist_ok=True)
    byte_level().save(str(file))
    return folder


@pytest.fixture
def inflight(tmp_path: Path) -> Path:
    folder = shutil.copytree(EXAMPLES / "inflight_batcher_llm" / "preprocessing", tmp_path / "preprocessing")
    file = tmp_path / "tensorrt_llm" / "1" / "model" / "tokenizer.json"
    file.parent.mkdir(parents=True)
    byte_level().save(str(file))
    return folder


def query(rows: list[list[str]]) -> dict[str, Any]:
    return {"QUERY": np.array(rows, np.object_), "REQUEST_OUTPUT_LEN": np.full((len(rows), 1), 4, np.uint32)}


def test_each_row_is_a_text(preprocessing: Path) -> None:
    with load_model(preprocessing) as model:
        result = model.infer(query([["the sea"], ["the sea is calm"]]))
    sizes = result["REQUEST_INPUT_LEN"].reshape(-1).tolist()
    assert result["INPUT_ID"].shape == (2, max(sizes))
    assert 0 < sizes[0] < sizes[1]


@pytest.mark.parametrize("rows", [[["one", "two"]], [["a", "b", "c"], ["d", "e", "f"]]])
def test_several_texts_in_a_row_are_refused_alone(preprocessing: Path, rows: list[list[str]]) -> None:
    with load_model(preprocessing) as model:
        good, bad = model.infer_many([query([["the sea"]]), query(rows)])
        good.check()
        with pytest.raises(
            ServingError, match=f"'QUERY' has {len(rows[0])} texts in each row, and takes one"
        ) as caught:
            bad.check()
    assert caught.value.kind is ErrorKind.INVALID_ARGUMENT


SEA = query([["the sea"]])


def listed(model: LoadedModel, *entries: str, kind: Any = np.uint32) -> set[str]:
    """What the words are after a way through the tokenizer; some examples have each behind a blank, too."""
    tensors = {name: array.astype(kind) if array.dtype == np.uint32 else array for name, array in SEA.items()}
    result = model.infer({**tensors, "STOP_WORDS_DICT": np.array([entries], np.object_)})
    ids, ends = result["STOP_WORDS_IDS"][0].tolist()
    ends = [end for end in ends if end >= 0]
    assert ends == [] or ends[-1] <= len(ids)
    return {byte_level().decode(ids[first:end]) for first, end in zip([0, *ends], ends, strict=False)}


def with_blanks(words: set[str]) -> set[str]:
    return words | {f" {word}" for word in words if not word[0].isspace()}


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        (["one", "two"], {"one", "two"}),
        (["one,two"], {"one", "two"}),
        (["Hawks, Hawks"], {"Hawks", " Hawks"}),
        (["\nUser:"], {"\nUser:"}),
        (["\n"], {"\n"}),
        (["\r\n,end"], {"\r\n", "end"}),
        (["\n", "a,b", '"', ""], {"\n", "a,b", '"'}),
        (['"'], {'"'}),
        (['say "no"'], {'say "no"'}),
        (['"a,b",c'], {"a,b", "c"}),
        (['"a ""b"" c"'], {'a "b" c'}),
        (["one,"], {"one"}),
        ([","], {","}),
        ([""], set()),
        (['""'], set()),
        (["", ""], set()),
    ],
)
def test_words_are_a_list_or_a_text_with_commas(preprocessing: Path, entries: list[str], words: set[str]) -> None:
    with load_model(preprocessing) as model:
        found = listed(model, *entries)
    assert words <= found <= with_blanks(words)


def test_words_of_the_inflight_batcher_are_a_list(inflight: Path) -> None:
    with load_model(inflight) as model:
        assert listed(model, "\nUser:", "a,b", '"', "", kind=np.int32) == with_blanks({"\nUser:", "a,b", '"'})


@pytest.mark.parametrize("name", ["BAD_WORDS_DICT", "STOP_WORDS_DICT"])
@pytest.mark.parametrize("example", ["falcon-7b-trt", "inflight_batcher_llm"])
def test_more_words_than_the_engine_takes_in_two_forms_are_counted_as_the_client_does(
    tmp_path: Path, example: str, name: str
) -> None:
    folder = shutil.copytree(EXAMPLES / example / "preprocessing", tmp_path / "preprocessing")
    file = tmp_path / {**TOKENIZERS, "inflight_batcher_llm": "tensorrt_llm/1/model/tokenizer.json"}[example]
    file.parent.mkdir(parents=True)
    byte_level().save(str(file))
    kind = np.int32 if example == "inflight_batcher_llm" else np.uint32
    given = {**SEA, "REQUEST_OUTPUT_LEN": np.array([[4]], kind)}
    words = [f"word {number}" for number in range(513)]
    with load_model(folder) as model:
        most = model.infer({**given, name: np.array([words[:512]], np.object_)})
        ends = most[name.replace("DICT", "IDS")][0, 1]
        assert np.count_nonzero(ends >= 0) == 1024
        with pytest.raises(ServingError, match=f"'{name}' has 513 words, and takes 512") as refused:
            model.infer({**given, name: np.array([words], np.object_)})
    assert refused.value.kind is ErrorKind.INVALID_ARGUMENT


def keeps_letters(folder: Path) -> None:
    """Makes a tokenizer that has no token for anything but letters and blanks."""
    (file,) = folder.parent.rglob("*tokenizer.json")
    tokenizer = byte_level()
    tokenizer.normalizer = normalizers.Replace(Regex("[^a-z ]"), "")
    tokenizer.save(str(file))


def test_words_without_a_token_are_told(preprocessing: Path) -> None:
    keeps_letters(preprocessing)
    with load_model(preprocessing) as model:
        assert listed(model, "\u2603", "sea") <= {"sea", " sea"}
        assert [entry.message for entry in model.logs[-1:]] == ["the word '\u2603' has no token, and is left out"]


def test_words_of_the_inflight_batcher_without_a_token_are_told(inflight: Path) -> None:
    keeps_letters(inflight)
    with load_model(inflight) as model:
        assert listed(model, "\u2603", "sea", kind=np.int32) == {"sea", " sea"}
        assert [entry.message for entry in model.logs[-1:]] == ["the word '\u2603' has no token, and is left out"]
