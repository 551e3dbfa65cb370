"""Questions about a table: a runner for each of the two sorts of models that answer them."""

from __future__ import annotations

import importlib
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trireme.backends.compiled.batching import RequestError
from trireme.backends.transformers.items import Item, Outputs, text_array
from trireme.backends.transformers.loading import Loaded
from trireme.backends.transformers.runner import Runner
from trireme.backends.transformers.text.generation import Prompt
from trireme.backends.transformers.text.tables import Table, read_table
from trireme.backends.transformers.text.text_batch import token_limit
from trireme.backends.transformers.text.text_to_text import TextToText

_SEGMENT, _COLUMN, _ROW, _PREVIOUS = range(4)
"""What the first of a token's types mean to TAPAS: rows and columns are counted from 1, 0 is no cell."""
_LONGEST_CELL = 15  # tokens that TAPEX was trained with


def table_questions(loaded: Loaded) -> Runner:
    """For a model that selects cells, or one that reads the table as a text and writes the answer."""
    return CellAnswers(loaded) if loaded.model.config.model_type == "tapas" else WrittenAnswers(loaded)


@dataclass(frozen=True, slots=True)
class _Questions:
    """A conversation about one table: all but the last question have been asked before."""

    table: Table
    turns: Sequence[Mapping[str, Any]]
    """The model's inputs for each question, one row each."""

    @property
    def width(self) -> int:
        """Tokens of the longest."""
        return max(int(turn["input_ids"].shape[1]) for turn in self.turns)


class CellAnswers:
    """A model such as TAPAS, which selects cells and what is to be done with them."""

    def __init__(self, loaded: Loaded) -> None:
        self._pandas = importlib.import_module("pandas")  # its tokenizer could not have been loaded without
        self._torch = loaded.torch
        self._model = loaded.model
        self._tokenizer = loaded.tokenizer
        self._config = loaded.model.config
        self._limit = token_limit(self._config, loaded.tokenizer)
        self._adds_up = bool(self._config.aggregation_labels and self._config.num_aggregation_labels)

    def prepare(self, item: Item) -> _Questions:
        """Takes `table` and `query`, and the `previous_queries` of a conversation."""
        table = read_table(item.text("table"))
        most = self._config.type_vocab_sizes[_COLUMN] - 1
        if len(table.columns) > most:
            raise RequestError(f"input 'table' has {len(table.columns)} columns, and the model takes at most {most}")
        queries = [*item.options.get("previous_queries", ()), item.text("query")]
        if not all(query.strip() for query in queries):
            raise RequestError("neither 'query' nor one of the 'previous_queries' may be empty")
        frame = self._pandas.DataFrame(table.columns, dtype=object)
        is_cut = item.options.get("truncation", True)
        return _Questions(table, [self._encode(frame, query, is_cut) for query in queries])

    def key(self, prepared: _Questions) -> Hashable:
        """Conversations of one length go through the model turn by turn."""
        return len(prepared.turns)

    def run(self, prepared: Sequence[_Questions]) -> list[Outputs]:
        """The answer to the last question of each conversation."""
        previous: list[NDArray[np.int64] | None] = [None] * len(prepared)
        width, last = max(entry.width for entry in prepared), len(prepared[0].turns) - 1
        for turn in range(last + 1):
            rows = [entry.turns[turn] for entry in prepared]
            for row, selected in zip(rows, previous, strict=True):
                if selected is not None:
                    row["token_type_ids"][0, :, _PREVIOUS] = self._torch.from_numpy(_marks(row, selected))
            outputs = self._model(**self._batch(rows, width))
            logits = outputs.logits.float().cpu()
            if turn < last:
                previous = [_selected(row, answer.numpy()) for row, answer in zip(rows, logits, strict=True)]
        sums = outputs.logits_aggregation.float().cpu() if self._adds_up else [None] * len(prepared)
        return [
            self._outputs(entry, answer[None, : entry.turns[-1]["input_ids"].shape[1]].clone(), operation)
            for entry, answer, operation in zip(prepared, logits, sums, strict=True)
        ]

    def _encode(self, frame: Any, query: str, is_cut: bool) -> Mapping[str, Any]:
        way = "drop_rows_to_fit" if is_cut else "do_not_truncate"
        try:
            encoded = dict(self._tokenizer(frame, query, truncation=way, return_tensors="pt"))
        except ValueError as error:  # not even the names of the columns fit
            raise RequestError(f"the table and the query do not fit into the model: {error}") from error
        count = encoded["input_ids"].shape[1]
        if self._limit is not None and count > self._limit:
            raise RequestError(
                f"the table has {count} tokens with the query, and the model takes at most {self._limit}; leave rows "
                "out, or set the parameter 'truncation' to true to have its last rows left out"
            )
        if not encoded["token_type_ids"][..., _COLUMN].any():
            raise RequestError("input 'table' has no cell and no name of a column with anything in it")
        return encoded

    def _batch(self, rows: Sequence[Mapping[str, Any]], width: int) -> dict[str, Any]:
        fillings = {"input_ids": self._tokenizer.pad_token_id}
        batch = {}
        for name in ("input_ids", "attention_mask", "token_type_ids"):
            first = rows[0][name]
            padded = first.new_full((len(rows), width, *first.shape[2:]), fillings.get(name, 0))
            for index, row in enumerate(rows):
                padded[index, : row[name].shape[1]] = row[name][0]
            batch[name] = padded.to(self._model.device)
        return batch

    def _outputs(self, entry: _Questions, logits: Any, operation: Any) -> Outputs:
        inputs = dict(entry.turns[-1])
        if operation is None:
            places, aggregator, prefix = self._tokenizer.convert_logits_to_predictions(inputs, logits)[0][0], "", ""
        else:
            found, chosen = self._tokenizer.convert_logits_to_predictions(inputs, logits, operation[None])
            places, aggregator = found[0], str(self._config.aggregation_labels[int(chosen[0])])
            is_none = chosen[0] == self._config.no_aggregation_label_index
            prefix = "" if is_none else f"{aggregator} > "
        rows = entry.table.rows()
        cells = [rows[row][column] for row, column in places]
        return _answer(prefix + ", ".join(cells), places, cells, aggregator)


class WrittenAnswers(TextToText):
    """A model such as TAPEX: the table follows the query as a text."""

    def __init__(self, loaded: Loaded) -> None:
        super().__init__(loaded)
        self._is_lower = bool(loaded.tokenizer.init_kwargs.get("do_lower_case", True))

    def prepare(self, item: Item) -> Prompt:
        """Takes `table` and `query`."""
        table, query = read_table(item.text("table")), item.text("query")
        if not query.strip():
            raise RequestError("input 'query' is empty")
        if item.options.get("previous_queries"):
            raise RequestError("the model takes each query alone: 'previous_queries' are for models such as TAPAS")
        text = f"{query} {self._flat(table)}"
        text = text.lower() if self._is_lower else text
        ids = self._texts.encode(text, truncation=item.options.get("truncation"))
        return self._generator.prompt(item, ids, self._room)

    def run(self, prepared: Sequence[Prompt]) -> list[Outputs]:
        """What the model writes for each query; it names no cells."""
        return [_answer(str(outputs["text_output"][0]), [], [], "") for outputs in super().run(prepared)]

    def _flat(self, table: Table) -> str:
        rows = (" | ".join(map(self._shortened, row)) for row in table.rows())
        numbered = (f"row {index} : {row}" for index, row in enumerate(rows, 1))
        return " ".join(["col : " + " | ".join(table.columns), *numbered])

    def _shortened(self, cell: str) -> str:
        ids = self._tokenizer(cell, add_special_tokens=False)["input_ids"]
        return cell if len(ids) < _LONGEST_CELL else str(self._tokenizer.decode(ids[:_LONGEST_CELL]))


def _cells(inputs: Mapping[str, Any]) -> NDArray[np.int64]:
    """A number for each token that is the same for all tokens of a cell; 0 where it is in none."""
    types: NDArray[np.int64] = inputs["token_type_ids"][0].numpy()
    is_cell = (types[:, _SEGMENT] == 1) & (types[:, _COLUMN] > 0) & (types[:, _ROW] > 0)
    return np.where(is_cell, types[:, _ROW] * (types[:, _COLUMN].max() + 1) + types[:, _COLUMN], 0)


def _selected(inputs: Mapping[str, Any], logits: NDArray[np.float32]) -> NDArray[np.int64]:
    """The row and column of the cells whose tokens are more likely than not a part of the answer."""
    cells = _cells(inputs)
    chances = (1 + np.tanh(logits[: len(cells)].astype(np.float64) / 2)) / 2  # a sigmoid that does not overflow
    scores = chances * inputs["attention_mask"][0].numpy()
    counts = np.bincount(cells)
    means = np.bincount(cells, weights=scores) / np.maximum(counts, 1)
    chosen = np.isin(cells, np.flatnonzero(means > 0.5)) & (cells > 0)
    types = inputs["token_type_ids"][0].numpy()
    return np.unique(types[chosen][:, [_ROW, _COLUMN]], axis=0)


def _marks(inputs: Mapping[str, Any], selected: NDArray[np.int64]) -> NDArray[np.int64]:
    """1 for the tokens of the cells that answered the question before."""
    types: NDArray[np.int64] = inputs["token_type_ids"][0].numpy()
    is_same = (types[:, None, [_ROW, _COLUMN]] == selected[None]).all(axis=-1).any(axis=-1)
    is_marked: NDArray[np.bool_] = (types[:, _SEGMENT] == 1) & is_same
    return is_marked.astype(np.int64)


def _answer(text: str, places: Sequence[Sequence[int]], cells: Sequence[str], aggregator: str) -> Outputs:
    return {
        "answer": text_array([text]),
        "coordinates": np.array(places, dtype=np.int32).reshape(-1, 2),
        "cells": text_array(cells),
        "aggregator": text_array([aggregator]),
    }
