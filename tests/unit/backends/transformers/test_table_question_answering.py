"""Questions about tables: cells that a model selects, and answers that another writes."""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np
import pytest
from payloads import text, texts
from tiny_multimodal_models import multimodal_model
from tiny_task_models import task_model

from trireme.backends.compiled.batching import RequestError
from trireme.backends.transformers.text.tables import read_table
from trireme.core.errors import ErrorKind, ServingError
from trireme.testing import Request

pytestmark = pytest.mark.filterwarnings("ignore")

FLEET = {"ship": ["red", "blue", "big"], "captain": ["anna", "otto", "anna b"], "age": ["4", "12", "30"]}
PLACES = {"harbour": ["athens", "rome"], "wind": ["3", "17"]}
QUERIES = ["who is the captain of blue ?", "what is the age of it ?", "where is the harbour ?"]


@pytest.fixture(scope="module")
def library() -> Any:
    return pytest.importorskip("transformers")


@pytest.fixture
def pandas() -> Any:
    return pytest.importorskip("pandas")


def asked(table: Any, query: str, previous: tuple[str, ...] = ()) -> dict[str, Any]:
    inputs = {"table": text(json.dumps(table)), "query": text(query)}
    if previous:
        inputs["previous_queries"] = np.array([[entry.encode() for entry in previous]], dtype=np.object_)
    return inputs


def assert_answer(result: Any, expected: Any) -> None:
    assert texts(result["answer"]) == [expected["answer"]]
    assert [tuple(place) for place in result["coordinates"][0].tolist()] == expected["coordinates"]
    assert texts(result["cells"]) == expected["cells"]
    assert texts(result["aggregator"]) == [expected.get("aggregator", "")]


@pytest.mark.parametrize("kind", ["tapas", "tapas-selecting"])
def test_selected_cells_equal_the_pipelines(serve: Any, library: Any, pandas: Any, kind: str) -> None:
    folder = multimodal_model(kind)
    pipeline = library.pipeline("table-question-answering", model=str(folder))
    questions = [(table, query) for table in (FLEET, PLACES) for query in QUERIES]
    results = serve(folder).infer_many([asked(table, query) for table, query in questions])
    for result, (table, query) in zip(results, questions, strict=True):
        assert_answer(result, pipeline(table=table, query=query))
    assert len({texts(result["answer"])[0] for result in results}) > 1


@pytest.mark.parametrize("kind", ["tapas", "tapas-selecting"])
def test_a_conversation_equals_the_pipelines_sequence(serve: Any, library: Any, pandas: Any, kind: str) -> None:
    folder = multimodal_model(kind)
    pipeline = library.pipeline("table-question-answering", model=str(folder))
    first, second, third = QUERIES
    begun = [(table, pair) for table in (FLEET, PLACES) for pair in ((first, second), (second, third), (third, first))]
    results = serve(folder).infer_many(
        [asked(table, query, (before,)) for table, (before, query) in begun]
        + [asked(table, query) for table, (_, query) in begun]
    )
    after, alone = results[: len(begun)], results[len(begun) :]
    for result, lonely, (table, queries) in zip(after, alone, begun, strict=True):
        assert_answer(result, pipeline(table=table, query=list(queries), sequential=True)[-1])
        assert_answer(lonely, pipeline(table=table, query=queries[-1]))
    assert [texts(result["answer"]) for result in after] != [texts(result["answer"]) for result in alone]


def test_the_last_rows_of_a_long_table_are_left_out(serve: Any, library: Any, pandas: Any) -> None:
    folder, table = multimodal_model("tapas"), {name: cells * 20 for name, cells in FLEET.items()}
    pipeline = library.pipeline("table-question-answering", model=str(folder))
    cut, kept = serve(folder).infer_many(
        [asked(table, QUERIES[0]), Request(asked(table, QUERIES[0]), parameters={"truncation": False})]
    )
    assert_answer(cut, pipeline(table=table, query=QUERIES[0]))
    with pytest.raises(ServingError, match="and the model takes at most 64; leave rows out") as caught:
        kept.check()
    assert caught.value.kind is ErrorKind.INVALID_ARGUMENT


@pytest.mark.parametrize(
    ("inputs", "told"),
    [
        (asked(FLEET, " "), "neither 'query' nor one of the 'previous_queries' may be empty"),
        (asked({f"c{index}": ["1"] for index in range(300)}, "what ?"), "has 300 columns, and the model takes at most"),
        (asked({f"c{index}": ["1"] for index in range(90)}, "what ?"), "do not fit into the model"),
        (asked({"": [""]}, "what ?"), "has no cell and no name of a column with anything in it"),
        ({"table": text("{"), "query": text("what ?")}, "input 'table' is not JSON"),
    ],
)
def test_a_bad_request_is_told_so_and_its_neighbour_is_answered(
    serve: Any, pandas: Any, inputs: dict[str, Any], told: str
) -> None:
    good, bad = serve(multimodal_model("tapas")).infer_many([asked(FLEET, QUERIES[0]), inputs])
    good.check()
    with pytest.raises(ServingError) as caught:
        bad.check()
    assert told in str(caught.value)
    assert caught.value.kind is ErrorKind.INVALID_ARGUMENT


def test_without_pandas_the_model_says_what_is_missing(
    serve: Any, library: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenization = pytest.importorskip("transformers.models.tapas.tokenization_tapas")
    monkeypatch.setattr(tokenization, "is_pandas_available", lambda: False)
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(Exception, match=r"needs a package that is not installed: Pandas"):
        serve(multimodal_model("tapas"))


def test_written_answers_are_the_models_for_the_table_as_a_text(serve: Any, library: Any) -> None:
    """The library's own way from tables to texts went with release 5: this is the text that TAPEX was trained with."""
    folder = task_model("t5")
    model = library.T5ForConditionalGeneration.from_pretrained(folder).eval()
    tokenizer = library.AutoTokenizer.from_pretrained(folder)
    flat = {
        json.dumps(FLEET): "col : ship | captain | age row 1 : red | anna | 4 row 2 : blue | otto | 12 "
        "row 3 : big | anna b | 30",
        json.dumps(PLACES): "col : harbour | wind row 1 : athens | 3 row 2 : rome | 17",
    }
    questions = [(table, query.upper()) for table in (FLEET, PLACES) for query in QUERIES]
    served = serve(folder, task="table-question-answering", max_new_tokens=12)
    results = served.infer_many([asked(table, query) for table, query in questions])
    for result, (table, query) in zip(results, questions, strict=True):
        ids = tokenizer(f"{query.lower()} {flat[json.dumps(table)]}", return_tensors="pt")
        written = model.generate(ids["input_ids"], attention_mask=ids["attention_mask"], max_new_tokens=12)
        assert texts(result["answer"]) == [tokenizer.decode(written[0, 1:], skip_special_tokens=True)]
        assert (result["coordinates"].shape, result["cells"].shape) == ((1, 0, 2), (1, 0))
    assert len({texts(result["answer"])[0] for result in results}) > 1


def test_a_long_cell_is_written_short_for_a_model_that_writes(serve: Any) -> None:
    model = serve(task_model("t5"), task="table-question-answering", max_new_tokens=12)
    long = {"ship": ["the quick brown fox jumps over the lazy dog and " * 40]}
    model.infer(Request(asked(long, QUERIES[0])))
    with pytest.raises(ServingError, match="the model takes each query alone"):
        model.infer(Request(asked(FLEET, QUERIES[1], (QUERIES[0],))))
    with pytest.raises(ServingError, match="input 'query' is empty"):
        model.infer(Request(asked(FLEET, "")))


def test_a_table_may_come_in_rows_with_numbers_and_gaps() -> None:
    rows = [{"name": "Anna", "age": 41}, {"name": None, "age": 3.5}, {"age": True}]
    assert read_table(json.dumps(rows)).columns == {"name": ["Anna", "", ""], "age": ["41", "3.5", "True"]}
    assert read_table('{"a": [1, 2], "b": ["x", "y"]}').rows() == [("1", "x"), ("2", "y")]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("7", "must have lists of cells by the names of columns"),
        ("[1, 2]", "must have lists of cells by the names of columns"),
        ('{"a": 1}', "must have lists of cells by the names of columns"),
        ('{"a": [1], "b": [1, 2]}', "must be equally long, found {'a': 1, 'b': 2}"),
        ('{"a": []}', "has no cells"),
        ("{}", "has no cells"),
        ('{"a": [[1]]}', "the cells of column 'a' of 'table' must be texts or numbers"),
        ("[" * 100_000, "is not JSON (it is nested too deeply"),
        *(
            (f'{{"a": [{"[" * levels}{"]" * levels}]}}', "is not JSON (it is nested too deeply")
            for levels in (300, 60_000)
        ),
    ],
)
def test_what_is_no_table_is_refused(given: str, told: str) -> None:
    with pytest.raises(RequestError) as caught:
        read_table(given)
    assert told in str(caught.value)
