"""Turns token ids into texts, one for each beam, special tokens and all."""

import json
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """Decodes rows as they are, without what fills up the shorter ones where their sizes are told."""

    def initialize(self, args):
        config = json.loads(args["model_config"])
        named = config["parameters"]["tokenizer_dir"]["string_value"]
        path = Path(args["model_repository"]).parent / named
        path = path if path.is_file() else path / "tokenizer.json"
        if not path.is_file():
            raise pb_utils.TritonModelException(f"there is no file '{path}': set the parameter tokenizer_dir")
        self.tokenizer = Tokenizer.from_file(str(path))

    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        try:
            return self.texts(request)
        except OverflowError:
            text = "TOKENS_BATCH has a number below 0, which is the id of no token"
            return pb_utils.InferenceResponse(error=pb_utils.TritonError(text, pb_utils.TritonError.INVALID_ARG))

    def texts(self, request):
        rows = pb_utils.get_input_tensor_by_name(request, "TOKENS_BATCH").as_numpy()
        given = pb_utils.get_input_tensor_by_name(request, "SEQUENCE_LENGTH")
        sizes = np.full(rows.shape[:2], rows.shape[2]) if given is None else given.as_numpy()
        texts = [
            self.tokenizer.decode(beam[:size].tolist(), skip_special_tokens=False)
            for row, row_sizes in zip(rows, sizes, strict=True)
            for beam, size in zip(row, row_sizes, strict=True)
        ]
        return pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT", np.array(texts, np.object_))])
