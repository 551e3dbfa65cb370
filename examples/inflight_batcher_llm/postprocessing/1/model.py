"""Turns token ids into texts, one for each beam."""

import json
from collections import OrderedDict
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

import triton_python_backend_utils as pb_utils

INCOMPLETE = "\ufffd"
"""What the beginning of a character of several bytes is decoded to."""
STREAM_ID = "stream_id"
"""The parameter of a request by which its responses, whose tokens come one after another, are known as one stream."""
MOST_STREAMS = 1024
MOST_IN_AN_ID = 256
"""Characters: ids are kept, and clients choose them."""
MOST_BYTES_BEGUN = 3
"""Of a character that is not whole; each may be decoded by itself."""
MOST_WAITING = 32
"""Tokens: more are no beginning of a character, and no more of those that are told are kept."""
HANDED_ON = {"CUM_LOG_PROBS": "OUT_CUM_LOG_PROBS", "OUTPUT_LOG_PROBS": "OUT_OUTPUT_LOG_PROBS"}


class TritonPythonModel:
    """Decodes what belongs to a text, and not what fills up the shorter ones."""

    def initialize(self, args):
        parameters = {
            key: entry["string_value"] for key, entry in json.loads(args["model_config"])["parameters"].items()
        }
        folder = Path(args["model_repository"]).parent / parameters["tokenizer_dir"]
        if not (folder / "tokenizer.json").is_file():
            raise pb_utils.TritonModelException(f"'{folder}' has no tokenizer.json: set the parameter tokenizer_dir")
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.skips_special_tokens = parameters.get("skip_special_tokens", "true").lower() in ("true", "1")
        self.streams = OrderedDict()
        """By id: the texts of those that were heard of last; nobody says that one has ended."""

    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        try:
            return self.texts(request)
        except OverflowError:
            text = "TOKENS_BATCH has a number below 0, which is the id of no token"
        except pb_utils.TritonModelException as error:
            text = str(error)
        return pb_utils.InferenceResponse(error=pb_utils.TritonError(text, pb_utils.TritonError.INVALID_ARG))

    def texts(self, request):
        given = {tensor.name(): tensor.as_numpy() for tensor in request.inputs()}
        rows = given["TOKENS_BATCH"]
        sizes = given.get("SEQUENCE_LENGTH", np.full(rows.shape[:2], rows.shape[2]))
        beams = [
            beam[:size].tolist()
            for row, row_sizes in zip(rows, sizes, strict=True)
            for beam, size in zip(row, row_sizes, strict=True)
        ]
        stream = json.loads(request.parameters() or "{}").get(STREAM_ID)
        texts = list(map(self.decode, beams)) if stream is None else self.streamed(stream, beams)
        tensors = [pb_utils.Tensor("OUTPUT", np.array(texts, np.object_))]
        tensors += [pb_utils.Tensor(out, given[name]) for name, out in HANDED_ON.items() if name in given]
        return pb_utils.InferenceResponse(tensors)

    def streamed(self, stream, beams):
        """What the tokens add to the texts of their stream."""
        if len(str(stream)) > MOST_IN_AN_ID:
            text = f"'{STREAM_ID}' has {len(stream)} characters, more than the {MOST_IN_AN_ID} that it may have"
            raise pb_utils.TritonModelException(text)
        texts = self.streams.pop(stream, None)
        if texts is None or len(texts) != len(beams):
            texts = [StreamedText(self.decode) for _ in beams]
        self.streams[stream] = texts
        if len(self.streams) > MOST_STREAMS:
            self.streams.popitem(last=False)
        return [text.more(tokens) for text, tokens in zip(texts, beams, strict=True)]

    def decode(self, ids):
        return self.tokenizer.decode(ids, skip_special_tokens=self.skips_special_tokens)


class StreamedText:
    """The text of tokens that come one after another: decoded together with those before them, since a character can be
    of several tokens, and a blank depends on the token before it."""

    def __init__(self, decode):
        self.decode = decode
        self.told, self.waiting = [], []
        self.sent = 0
        """Characters of the text of both."""

    def more(self, tokens):
        """The text that the tokens add, but for a character that is not whole yet."""
        text = self.decode(self.told + self.waiting + tokens)
        self.waiting += tokens
        end = len(text)
        while text[:end].endswith(INCOMPLETE) and len(text) - end < MOST_BYTES_BEGUN:
            end -= 1
        if end < len(text) and len(self.waiting) < MOST_WAITING:
            new, self.sent = text[self.sent : end], max(self.sent, end)
            return new
        new = text[self.sent :]
        self.told, self.waiting = self.waiting[-MOST_WAITING:], []
        self.sent = len(self.decode(self.told))
        return new
