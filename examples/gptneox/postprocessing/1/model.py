"""Turns token ids into texts, one for each beam."""

import json
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """Decodes what belongs to a text, and not what fills it up."""

    def initialize(self, args):
        self.tokenizer = load_tokenizer(args)

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
        given = pb_utils.get_input_tensor_by_name(request, "sequence_length")
        sizes = np.full(rows.shape[:2], rows.shape[2]) if given is None else given.as_numpy()
        texts = [
            self.tokenizer.decode(beam[:size].tolist())
            for row, row_sizes in zip(rows, sizes, strict=True)
            for beam, size in zip(row, row_sizes, strict=True)
        ]
        return pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT", np.array(texts, np.object_))])


def load_tokenizer(args):
    """The file that the configuration names, as seen from the repository or from where the server was started; where
    there is none, the one of that name beside this file."""
    named = Path(json.loads(args["model_config"])["parameters"]["tokenizer_path"]["string_value"])
    places = [Path(args["model_repository"]).parent / named, named.absolute(), Path(__file__).parent / named.name]
    for path in places:
        if path.is_file():
            if path == places[-1]:
                pb_utils.Logger.log_warn(f"tokenizer_path '{named}' is not there: '{path}' is read")
            return Tokenizer.from_file(str(path))
    tried = ", ".join(f"'{path}'" for path in places)
    raise pb_utils.TritonModelException(f"there is no tokenizer: looked for {tried}; set the parameter tokenizer_path")
