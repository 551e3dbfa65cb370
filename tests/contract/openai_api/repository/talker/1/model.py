"""Follows the tensors of language models with words in place of a network: it counts, calls tools, or never ends."""

import json
import threading
import time

import numpy as np

import triton_python_backend_utils as pb_utils

CANCELLED = {}


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            threading.Thread(target=answer, args=(request,)).start()


def answer(request):
    sender = request.get_response_sender()
    final = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
    try:
        asked = Answer(request)
        for outputs in asked.responses():
            if request.is_cancelled():
                CANCELLED.setdefault(asked.question(), []).append(request.request_id())
                break
            wanted = set(request.requested_output_names())
            tensors = [pb_utils.Tensor(name, value) for name, value in outputs.items() if name in wanted]
            sender.send(pb_utils.InferenceResponse(tensors))
    except ValueError as error:
        failure = pb_utils.TritonError(str(error), pb_utils.TritonError.INVALID_ARG)
        sender.send(pb_utils.InferenceResponse([], failure))
    sender.send(flags=final)


class Answer:
    def __init__(self, request):
        self.parameters = json.loads(request.parameters() or "{}")
        text = value_of(request, "sampling_parameters")
        self.options = {**json.loads(text[0] if text else "{}"), **self.parameters}
        stream = value_of(request, "stream")
        self.is_stream = bool(stream and stream[0])
        messages = value_of(request, "messages")
        self.messages = json.loads(messages[0]) if messages else None
        self.prompt = value_of(request, "text_input")
        self.ids = value_of(request, "input_ids")

    def responses(self):
        operation = self.options.get("operation")
        if operation == "tokenize":
            text = self.prompt[0].decode() if self.prompt else self.messages[-1]["content"]
            return [{"token_ids": np.array([len(word) for word in text.split()], np.int32)}]
        if operation == "detokenize":
            return [{"text_output": strings(" ".join("x" * length for length in self.ids))}]
        choices = [self.choice(index) for index in range(self.options.get("n", 1))]
        return self.streamed(choices) if self.is_stream else [self.whole(choices)]

    def question(self):
        if self.messages:
            return self.messages[-1]["content"]
        return self.prompt[0].decode() if self.prompt else " ".join(map(str, self.ids))

    def choice(self, index):
        question = self.question()
        if question == "options":
            return [json.dumps(self.options, sort_keys=True)], "stop"
        if question.startswith("cancelled "):
            words, reason = [str(len(CANCELLED.get(question.removeprefix("cancelled "), [])))], "stop"
        elif question == "fail":
            raise ValueError("'temperature' is too hot")
        elif question.startswith("forever"):
            words, reason = ["on "] * 100_000, "length"
        else:
            words, reason = [f"{word}{index}" + " " for word in question.split()], "stop"
        limit = self.options.get("max_tokens", len(words))
        if limit < len(words):
            words, reason = words[:limit], "length"
        for stop in self.options.get("stop", []):
            text = "".join(words)
            if stop in text:
                words, reason = [text[: text.index(stop)]], "stop"
        return words, reason

    def usage(self, choices):
        prompt = len(self.question().split())
        written = sum(len(words) for words, _ in choices)
        details = {"cached_tokens": 1}
        return strings(
            json.dumps(
                {
                    "prompt_tokens": prompt,
                    "completion_tokens": written,
                    "total_tokens": prompt + written,
                    "prompt_tokens_details": details,
                }
            )
        )

    def logprobs(self, words):
        top = [{"token": "other", "bytes": None, "logprob": -2.0}]
        content = [{"token": word, "bytes": None, "logprob": -0.5, "top_logprobs": top} for word in words]
        return json.dumps({"content": content})

    def deltas(self, words):
        if "tools" in self.options:
            name = self.options["tools"][0]["function"]["name"]
            call = {"index": 0, "id": "call_1", "type": "function", "function": {"name": name, "arguments": ""}}
            yield {"role": "assistant", "content": None, "tool_calls": [call]}
            for part in ('{"city"', ': "Athens"}'):
                yield {"tool_calls": [{"index": 0, "function": {"arguments": part}}]}
        else:
            for word in words:
                yield {"content": word}

    def streamed(self, choices):
        for index, (words, reason) in enumerate(choices):
            deltas = list(self.deltas(words))
            for position, delta in enumerate(deltas):
                is_last = position == len(deltas) - 1
                text = words[position] if position < len(words) else ""
                finish = ("tool_calls" if "tools" in self.options else reason) if is_last else ""
                outputs = {
                    "text_output": strings(text),
                    "delta": strings(json.dumps(delta)),
                    "index": np.array([index], np.int32),
                    "finish_reason": strings(finish),
                    "logprobs": strings(self.logprobs([text])),
                }
                if is_last and index == len(choices) - 1:
                    outputs["usage"] = self.usage(choices)
                yield outputs
                if words[0] == "on ":
                    time.sleep(0.01)

    def whole(self, choices):
        messages = []
        for words, _ in choices:
            if "tools" in self.options:
                function = {"name": self.options["tools"][0]["function"]["name"], "arguments": '{"city": "Athens"}'}
                calls = [{"id": "call_1", "type": "function", "function": function}]
                messages.append({"role": "assistant", "content": None, "tool_calls": calls})
            else:
                messages.append({"role": "assistant", "content": "".join(words)})
        reasons = ["tool_calls" if "tools" in self.options else reason for _, reason in choices]
        return {
            "text_output": strings(*["".join(words) for words, _ in choices]),
            "delta": strings(json.dumps(messages if len(messages) > 1 else messages[0])),
            "finish_reason": strings(*reasons),
            "usage": self.usage(choices),
            "logprobs": strings(*[self.logprobs(words) for words, _ in choices]),
        }


def value_of(request, name):
    tensor = pb_utils.get_input_tensor_by_name(request, name)
    return None if tensor is None else tensor.as_numpy().ravel().tolist()


def strings(*texts):
    return np.array([text.encode() for text in texts], dtype=np.object_)
