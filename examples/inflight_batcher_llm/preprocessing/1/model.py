"""Turns texts into token ids, and words into the tensors that the engine takes."""

import json
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

import triton_python_backend_utils as pb_utils

MOST_WORDS = 512
"""Of one prompt: the engine takes 1024, and each goes there in two forms."""


class TritonPythonModel:
    """Rows of a request are independent of each other."""

    def initialize(self, args):
        parameters = {
            key: entry["string_value"] for key, entry in json.loads(args["model_config"])["parameters"].items()
        }
        folder = Path(args["model_repository"]).parent / parameters["tokenizer_dir"]
        if not (folder / "tokenizer.json").is_file():
            raise pb_utils.TritonModelException(f"'{folder}' has no tokenizer.json: set the parameter tokenizer_dir")
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.adds_special_tokens = parameters.get("add_special_tokens", "true").lower() in ("true", "1")

    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        try:
            return pb_utils.InferenceResponse([pb_utils.Tensor(*item) for item in self.tensors(request).items()])
        except ValueError as error:
            return pb_utils.InferenceResponse(error=pb_utils.TritonError(str(error), pb_utils.TritonError.INVALID_ARG))

    def tensors(self, request):
        given = values(request, "QUERY")
        if given.shape[1] != 1:
            raise ValueError(f"'QUERY' has {given.shape[1]} texts in each row, and takes one: give each its own row")
        texts = [row[0].decode() for row in given]
        rows = [self.tokenizer.encode(text, add_special_tokens=self.adds_special_tokens).ids for text in texts]
        if not all(rows):
            raise ValueError("'QUERY' has a text without tokens: a prompt has at least one")
        ids = np.zeros((len(rows), max(map(len, rows))), np.int32)
        for place, row in enumerate(rows):
            ids[place, : len(row)] = row
        weights = values(request, "EMBEDDING_BIAS_WEIGHTS")
        return {
            "INPUT_ID": ids,
            "REQUEST_INPUT_LEN": np.array([[len(row)] for row in rows], np.int32),
            "REQUEST_OUTPUT_LEN": values(request, "REQUEST_OUTPUT_LEN"),
            "BAD_WORDS_IDS": self.words(request, "BAD_WORDS_DICT", len(rows)),
            "STOP_WORDS_IDS": self.words(request, "STOP_WORDS_DICT", len(rows)),
            "EMBEDDING_BIAS": self.bias(values(request, "EMBEDDING_BIAS_WORDS"), weights, len(rows)),
        }

    def words(self, request, name, count):
        """Two lines for each row: the ids of all its words, filled up with 0, and where each ends, with -1."""
        given = values(request, name)
        if given is None:
            return np.zeros((count, 2, 0), np.int32)
        found = [self.row_of_words(name, row) for row in given]
        width = max(1, *(len(ids) for ids, _ in found))
        lines = [(ids + [0] * (width - len(ids)), ends + [-1] * (width - len(ends))) for ids, ends in found]
        return np.array(lines, np.int32)

    def row_of_words(self, name, row):
        """Each word as it is at the beginning of a text and inside of it, behind a blank."""
        words, found = [entry.decode() for entry in row if entry], {}
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

    def bias(self, words, weights, count):
        """What is added to the logit of every token of each word."""
        if words is None and weights is None:
            return np.zeros((count, 0), np.float32)
        if words is None or weights is None or words.shape != weights.shape:
            raise ValueError("'EMBEDDING_BIAS_WORDS' and 'EMBEDDING_BIAS_WEIGHTS' go together, a weight for each word")
        found = np.zeros((count, self.tokenizer.get_vocab_size()), np.float32)
        for place, (row, amounts) in enumerate(zip(words, weights, strict=True)):
            for word, amount in zip(row, amounts, strict=True):
                for token in self.tokenizer.encode(word.decode(), add_special_tokens=False).ids:
                    found[place, token] += amount
        return found


def values(request, name):
    """The tensor's rows; None where the request does not have it."""
    tensor = pb_utils.get_input_tensor_by_name(request, name)
    return None if tensor is None else tensor.as_numpy()
