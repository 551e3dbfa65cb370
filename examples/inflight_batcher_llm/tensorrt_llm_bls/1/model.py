"""Calls preprocessing, the language model and postprocessing, and streams whole characters."""

import json
import re
import secrets
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np

import triton_python_backend_utils as pb_utils

TO_PREPROCESSING = {
    "text_input": "QUERY",
    "max_tokens": "REQUEST_OUTPUT_LEN",
    "bad_words": "BAD_WORDS_DICT",
    "stop_words": "STOP_WORDS_DICT",
    "embedding_bias_words": "EMBEDDING_BIAS_WORDS",
    "embedding_bias_weights": "EMBEDDING_BIAS_WEIGHTS",
}
FROM_PREPROCESSING = {
    "INPUT_ID": "input_ids",
    "REQUEST_INPUT_LEN": "input_lengths",
    "REQUEST_OUTPUT_LEN": "request_output_len",
    "BAD_WORDS_IDS": "bad_words_list",
    "STOP_WORDS_IDS": "stop_words_list",
    "EMBEDDING_BIAS": "embedding_bias",
}
RENAMED = {"top_k": "runtime_top_k", "top_p": "runtime_top_p", "length_penalty": "len_penalty", "stream": "streaming"}
CLIENT_NAMES = {
    **{inner: name for name, inner in (TO_PREPROCESSING | RENAMED).items()},
    **{FROM_PREPROCESSING[inner]: name for name, inner in TO_PREPROCESSING.items() if inner in FROM_PREPROCESSING},
}
"""By the name that a called model has for a tensor: the client's."""
COUNTS = ["num_input_tokens", "num_output_tokens"]
LLM_OUTPUTS = ["output_ids", "sequence_length", "cum_log_probs", "output_log_probs", *COUNTS]
FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
AT_ONCE = 128
LOOK_EVERY_S = 0.05
"""For clients that have left."""
INCOMPLETE = "\ufffd"
"""What the beginning of a character of several bytes is decoded to."""

REFUSED_INPUTS = re.compile(
    r"Model \S+ - Error when running inference: \[request id: [^]]*\] (?=.*(\binputs? |\bbatch-size ))", re.DOTALL
)
"""How the server begins the refusal of a call for its inputs, with the code INTERNAL whatever it is and our own id."""


class TritonPythonModel:
    """Every request of a decoupled model has a thread, so that one does not wait for another."""

    def initialize(self, args):
        config = json.loads(args["model_config"])
        parameters = {key: entry["string_value"] for key, entry in config.get("parameters", {}).items()}
        self.accumulates = parameters.get("accumulate_tokens", "false").lower() in ("true", "1")
        self.model_name = parameters.get("tensorrt_llm_model_name", "tensorrt_llm")
        self.is_decoupled = pb_utils.using_decoupled_model_transaction_policy(config)
        self.threads = ThreadPoolExecutor(AT_ONCE)
        self.running = {}
        """Requests, and the ids under which the language model works for them."""
        self.has_ended = threading.Event()
        threading.Thread(target=self.watch, daemon=True).start()

    def execute(self, requests):
        if not self.is_decoupled:
            return list(self.threads.map(self.single_answer, requests))
        for request in requests:
            self.threads.submit(self.send_answers, request)
        return None

    def finalize(self):
        self.threads.shutdown()
        self.has_ended.set()

    def watch(self):
        """Ends the work for clients that have left."""
        while not self.has_ended.wait(LOOK_EVERY_S):
            for request, number in list(self.running.items()):
                if request.is_cancelled():
                    self.stop(number)

    def stop(self, number):
        """What has ended by itself meanwhile is no longer there to be stopped, which is an answer like any other."""
        nothing = np.zeros((1, 1), np.int32)
        inputs = {"input_ids": nothing, "input_lengths": nothing, "request_output_len": nothing, "stop": nothing > -1}
        answer = made(self.model_name, inputs, LLM_OUTPUTS, number).exec(decoupled=self.is_decoupled)
        if self.is_decoupled:
            list(answer)

    def single_answer(self, request):
        try:
            (answer,) = self.answers(request)
            return answer
        except Exception as error:
            return failure(error)

    def send_answers(self, request):
        sender = request.get_response_sender()
        try:
            for answer in self.answers(request):
                sender.send(answer)
            sender.send(flags=FINAL)
        except Exception as error:
            sender.send(failure(error), FINAL)

    def answers(self, request):
        """The responses, made as their tokens come."""
        given = {tensor.name(): tensor.as_numpy() for tensor in request.inputs()}
        if len(given["text_input"]) != 1:
            raise ValueError(f"a request has one prompt, found {len(given['text_input'])}: send them one by one")
        is_stream = "stream" in given and bool(given["stream"].reshape(-1)[0])
        if is_stream and not self.is_decoupled:
            raise ValueError("'stream' needs a decoupled model: model_transaction_policy { decoupled: True }")
        found = call("preprocessing", mapped(given, TO_PREPROCESSING), list(FROM_PREPROCESSING))
        others = {RENAMED.get(name, name): array for name, array in given.items() if name not in TO_PREPROCESSING}
        inputs = {**mapped(found, FROM_PREPROCESSING), **others}
        if not is_stream:
            yield from map(self.whole, self.responses(request, inputs))
            return
        text = StreamedText(self.accumulates)
        for outputs in self.responses(request, inputs):
            size = int(outputs["sequence_length"][0, 0])
            yield response(text.more(outputs["output_ids"][0, 0, :size].tolist()), outputs)
        rest = text.rest()
        if rest is not None:
            yield response(rest, {})

    def responses(self, request, inputs):
        """The outputs of every response of the language model that has any."""
        number = str(secrets.randbits(48) + 1)
        call = made(self.model_name, inputs, LLM_OUTPUTS, number, sendable(json.loads(request.parameters())))
        try:
            self.running[request] = number
            responses = call.exec(decoupled=True) if self.is_decoupled else [call.exec()]
            yield from filter(None, map(outputs_of, responses))
        finally:
            self.running.pop(request, None)

    @staticmethod
    def whole(outputs):
        names = {"output_ids": "TOKENS_BATCH", "sequence_length": "SEQUENCE_LENGTH"}
        texts = call("postprocessing", mapped(outputs, names), ["OUTPUT"])["OUTPUT"]
        return response(texts, outputs)


class StreamedText:
    """The text of tokens that come one after another: decoded together with those before them, since a character can be
    of several tokens, and a blank depends on the token before it."""

    def __init__(self, accumulates):
        self.accumulates = accumulates
        self.tokens = []
        self.start = self.told = 0
        self.text = self.pending = ""

    def more(self, tokens):
        """What is to be sent: the new part, or all of it."""
        self.tokens += tokens
        before, now = self.decoded(self.tokens[self.start : self.told], self.tokens[self.start :])
        if now.endswith(INCOMPLETE):
            self.pending = now[len(before) :]
            return self.as_tensor("")
        self.start, self.told, self.pending = self.told, len(self.tokens), ""
        return self.as_tensor(now[len(before) :])

    def rest(self):
        """What has stayed incomplete to the end; None where there is nothing."""
        return self.as_tensor(self.pending) if self.pending else None

    def as_tensor(self, new):
        self.text += new
        return np.array([self.text if self.accumulates else new], np.object_)

    @staticmethod
    def decoded(*rows):
        sizes = np.array([[len(row) for row in rows]], np.int32)
        ids = np.zeros((1, len(rows), max(1, sizes.max())), np.int32)
        for place, row in enumerate(rows):
            ids[0, place, : len(row)] = row
        texts = call("postprocessing", {"TOKENS_BATCH": ids, "SEQUENCE_LENGTH": sizes}, ["OUTPUT"])["OUTPUT"]
        return [text.decode() for text in texts]


class RefusedCall(Exception):
    """What a model that was called has answered: the client is told the same, with its code."""


def mapped(arrays, names):
    """Those that are named, under their new names."""
    return {new: arrays[old] for old, new in names.items() if old in arrays}


def call(model, inputs, outputs):
    return outputs_of(made(model, inputs, outputs).exec())


def made(model, inputs, outputs, request_id="", parameters=None):
    """Parameters go on too: a model refuses those that would change its answer."""
    tensors = [pb_utils.Tensor(name, array) for name, array in inputs.items()]
    return pb_utils.InferenceRequest(
        model_name=model,
        inputs=tensors,
        requested_output_names=outputs,
        request_id=request_id,
        parameters=parameters or {},
    )


def sendable(parameters):
    """Floats, which a call between models does not take, go on as the integer that they equal, or as text: a model that
    knows the name refuses both alike."""
    return {name: unfloated(value) for name, value in parameters.items()}


def unfloated(value):
    if not isinstance(value, float):
        return value
    return int(value) if value.is_integer() and abs(value) < 2**63 else str(value)


def outputs_of(answer):
    if answer.has_error():
        raise RefusedCall(answer.error())
    return {tensor.name(): tensor.as_numpy() for tensor in answer.output_tensors()}


def response(texts, outputs):
    tensors = [pb_utils.Tensor("text_output", texts)]
    tensors += [pb_utils.Tensor(name, outputs[name]) for name in LLM_OUTPUTS[2:] if name in outputs]
    return pb_utils.InferenceResponse(tensors)


def failure(error):
    """What a called model refuses is told by the client's names for its tensors."""
    text, code, kind = str(error), pb_utils.TritonError.INTERNAL, pb_utils.TritonError
    if isinstance(error, RefusedCall):
        refused = error.args[0]
        text, count = REFUSED_INPUTS.subn("", refused.message(), count=1)
        text = re.sub(r"'(\w+)'", lambda match: f"'{CLIENT_NAMES.get(match[1], match[1])}'", text)
        code = pb_utils.TritonError.INVALID_ARG if count else refused.code()
        kind = type(refused)  # which may say more than its code does
    elif isinstance(error, ValueError):
        code = pb_utils.TritonError.INVALID_ARG
    return pb_utils.InferenceResponse(error=kind(text, code))
