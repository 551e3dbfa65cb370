"""Turns token ids into texts, one for each beam."""

import json
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

import triton_python_backend_utils as pb_utils

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

    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        try:
            return self.texts(request)
        except OverflowError:
            text = "TOKENS_BATCH has a number below 0, which is the id of no token"
            return pb_utils.InferenceResponse(error=pb_utils.TritonError(text, pb_utils.TritonError.INVALID_ARG))

    def texts(self, request):
        given = {tensor.name(): tensor.as_numpy() for tensor in request.inputs()}
        rows = given["TOKENS_BATCH"]
        sizes = given.get("SEQUENCE_LENGTH", np.full(rows.shape[:2], rows.shape[2]))
        texts = [
            self.decode(beam[:size])
            for row, row_sizes in zip(rows, sizes, strict=True)
            for beam, size in zip(row, row_sizes, strict=True)
        ]
        tensors = [pb_utils.Tensor("OUTPUT", np.array(texts, np.object_))]
        tensors += [pb_utils.Tensor(out, given[name]) for name, out in HANDED_ON.items() if name in given]
        return pb_utils.InferenceResponse(tensors)

    def decode(self, ids):
        return self.tokenizer.decode(ids.tolist(), skip_special_tokens=self.skips_special_tokens)
