"""Turns texts into token ids, and lists of words into tensors."""

import json
import re
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

import triton_python_backend_utils as pb_utils

FIELD = re.compile(r'(?:^|,)(?:"((?:[^"]|"")*)"(?=,|\Z)|([^,]*))')
"""A word of a text that has several: all up to a comma, or within quotes, where two stand for one."""
MOST_WORDS = 512
"""Of one prompt: the engine takes 1024, and each goes there in two forms."""


class TritonPythonModel:
    """Rows of a request are independent of each other."""

    def initialize(self, args):
        config = json.loads(args["model_config"])
        self.tokenizer = load_tokenizer(config, args)
        self.id_type = pb_utils.triton_string_to_numpy(
            pb_utils.get_output_config_by_name(config, "INPUT_ID")["data_type"]
        )

    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        try:
            return self.tensors(request)
        except ValueError as error:  # texts that are no UTF-8 among them
            return pb_utils.InferenceResponse(error=pb_utils.TritonError(str(error), pb_utils.TritonError.INVALID_ARG))

    def tensors(self, request):
        query = values(request, "QUERY")
        if query.shape[1] != 1:  # of several there would be one answer
            found = f"'QUERY' has {query.shape[1]} texts in each row, and takes one"
            raise ValueError(f"{found}: send them as rows, with the shape [texts, 1]")
        rows = [self.tokenizer.encode(row[0].decode()).ids for row in query]
        if not all(rows):
            raise ValueError("'QUERY' has a text without tokens: a prompt has at least one")
        ids = np.zeros((len(rows), max(map(len, rows))), self.id_type)
        for place, row in enumerate(rows):
            ids[place, : len(row)] = row
        return pb_utils.InferenceResponse(
            [
                pb_utils.Tensor("INPUT_ID", ids),
                pb_utils.Tensor("REQUEST_INPUT_LEN", np.array([[len(row)] for row in rows], self.id_type)),
                pb_utils.Tensor("REQUEST_OUTPUT_LEN", values(request, "REQUEST_OUTPUT_LEN")),
                pb_utils.Tensor("BAD_WORDS_IDS", self.words(request, "BAD_WORDS_DICT", len(rows))),
                pb_utils.Tensor("STOP_WORDS_IDS", self.words(request, "STOP_WORDS_DICT", len(rows))),
            ]
        )

    def words(self, request, name, count):
        """Two lines for each row: the ids of all its words, filled up with 0, and where each ends, with -1."""
        given = values(request, name)
        found = [self.row_of_words(name, row) for row in given] if given is not None else [([], [])] * count
        width = max(1, *(len(ids) for ids, _ in found))
        lines = [(ids + [0] * (width - len(ids)), ends + [-1] * (width - len(ends))) for ids, ends in found]
        return np.array(lines, np.int32)

    def row_of_words(self, name, row):
        """The ids of all words, and where each ends. A word means the same at the beginning of a text and inside of it,
        behind a blank, where a tokenizer has other tokens for it."""
        words, found = words_of(row), {}
        if len(words) > MOST_WORDS:
            raise ValueError(f"'{name}' has {len(words)} words, and takes {MOST_WORDS}")
        for word in words:
            forms = (word, word if word[0].isspace() else f" {word}")
            tokens = [tuple(self.tokenizer.encode(form, add_special_tokens=False).ids) for form in forms]
            if not tokens[0]:
                pb_utils.Logger.log_warn(f"the word {word!r} has no token, and is left out")
                continue
            found |= dict.fromkeys(tokens)
        ids, ends = [], []
        for tokens in found:
            ids += tokens
            ends.append(len(ids))
        return ids, ends


def values(request, name):
    """The tensor's rows; None where the request does not have it."""
    tensor = pb_utils.get_input_tensor_by_name(request, name)
    return None if tensor is None else tensor.as_numpy()


def words_of(row):
    """Those of one prompt: several entries are words as they are, and a single one is a text of words with commas
    between them, in quotes where one has a comma itself. Line breaks and blanks belong to the words."""
    texts = [entry.decode() for entry in row]
    if len(texts) == 1:
        found = [quoted.replace('""', '"') or plain for quoted, plain in FIELD.findall(texts[0])]
        texts = found if any(found) else [texts[0].strip('"')]  # a text of commas alone is a word
    return [text for text in texts if text]


def load_tokenizer(config, args):
    """The tokenizer of the folder that the configuration names, as seen from the repository."""
    named = config["parameters"]["tokenizer_dir"]["string_value"]
    path = Path(args["model_repository"]).parent / named
    path = path if path.is_file() else path / "tokenizer.json"
    if not path.is_file():
        raise pb_utils.TritonModelException(f"there is no file '{path}': set the parameter tokenizer_dir")
    return Tokenizer.from_file(str(path))
