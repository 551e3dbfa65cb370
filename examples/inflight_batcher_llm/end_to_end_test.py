"""Asks the three models one by one and the ensemble for the same texts, compares, and measures the ensemble."""

import argparse
import json
import queue
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import tritonclient.grpc as grpcclient
import tritonclient.http as httpclient
from tritonclient.utils import np_to_triton_dtype

WORDS_PER_TOKEN = 1.3
WARM_UP = 10


def main():
    flags = read_flags()
    prompts, lengths = read_dataset(flags.dataset, flags.max_input_len)
    if not prompts:
        raise SystemExit(f"{flags.dataset} has no prompt of at most {flags.max_input_len} tokens")
    asker = Asker(flags)
    test_functionality(asker, prompts, lengths)
    test_performance(asker, prompts, lengths, flags.concurrency)


def test_functionality(asker, prompts, lengths):
    print(f"[INFO] Start testing on {len(prompts)} prompts.")
    for number, (prompt, length) in enumerate(zip(prompts, lengths, strict=True)):
        chained, whole = chain(asker, prompt, length), ensemble(asker, prompt, length)
        if chained.tolist() != whole.tolist():
            raise SystemExit(f"[ERROR] prompt {number}: the models give {chained}, and the ensemble {whole}")
        print(f"Output: {whole}")
    print("[INFO] Functionality test succeed.")


def test_performance(asker, prompts, lengths, concurrency):
    print("[INFO] Warm up for benchmarking.")
    for _ in range(WARM_UP):
        ensemble(asker, prompts[0], lengths[0])
    print(f"[INFO] Start benchmarking on {len(prompts)} prompts.")
    began = time.monotonic()
    with ThreadPoolExecutor(min(concurrency, len(prompts))) as threads:
        list(threads.map(lambda item: ensemble(asker, *item), zip(prompts, lengths, strict=True)))
    print(f"[INFO] Total Latency: {round((time.monotonic() - began) * 1000, 3)} ms")


def chain(asker, prompt, length):
    before = asker.ask("preprocessing", QUERY=texts(prompt), REQUEST_OUTPUT_LEN=number(length), **no_words("_DICT"))
    names = {"INPUT_ID": "input_ids", "REQUEST_INPUT_LEN": "input_lengths", "REQUEST_OUTPUT_LEN": "request_output_len"}
    written = asker.ask("tensorrt_llm", **{new: before.as_numpy(old) for old, new in names.items()})
    names = {"output_ids": "TOKENS_BATCH", "sequence_length": "SEQUENCE_LENGTH"}
    return asker.ask("postprocessing", **{new: written.as_numpy(old) for old, new in names.items()}).as_numpy("OUTPUT")


def ensemble(asker, prompt, length):
    found = asker.ask("ensemble", text_input=texts(prompt), max_tokens=number(length), **no_words(""))
    return found.as_numpy("text_output")


def no_words(suffix):
    names = ("BAD_WORDS", "STOP_WORDS") if suffix else ("bad_words", "stop_words")
    return {name + suffix: texts("") for name in names}


def texts(text):
    return np.array([[text]], np.object_)


def number(value):
    return np.array([[value]], np.int32)


class Asker:
    """Sends a request and waits for its one answer, on a stream where the model is decoupled."""

    def __init__(self, flags):
        self.library = httpclient if flags.protocol == "http" else grpcclient
        self.url = flags.url or ("localhost:8000" if flags.protocol == "http" else "localhost:8001")
        self.verbose = flags.verbose
        self.decoupled = self.is_decoupled("tensorrt_llm")
        if self.decoupled and flags.protocol == "http":
            raise SystemExit("[ERROR] tensorrt_llm is decoupled, which infer over HTTP refuses: ask with -i grpc")

    def client(self):
        return self.library.InferenceServerClient(self.url, verbose=self.verbose)

    def is_decoupled(self, model):
        with self.client() as client:
            if self.library is grpcclient:
                return client.get_model_config(model).config.model_transaction_policy.decoupled
            return client.get_model_config(model).get("model_transaction_policy", {}).get("decoupled", False)

    def ask(self, model, **arrays):
        inputs = []
        for name, array in arrays.items():
            inputs.append(self.library.InferInput(name, array.shape, np_to_triton_dtype(array.dtype)))
            inputs[-1].set_data_from_numpy(array)
        with self.client() as client:
            if not self.decoupled or model.endswith("processing"):
                return client.infer(model, inputs)
            answers = queue.Queue()
            client.start_stream(lambda result, error: answers.put(error or result))
            client.async_stream_infer(model, inputs)
            answer = answers.get()
        if isinstance(answer, Exception):
            raise answer
        return answer


def read_dataset(path, max_input_len):
    """Prompts that are short enough, and how many tokens each is to be answered with."""
    prompts, lengths = [], []
    with open(path) as file:
        entries = json.load(file)
    for entry in entries:
        prompt = f"{entry['input']} {entry['instruction']}"
        if len(prompt.split(" ")) / WORDS_PER_TOKEN <= max_input_len:
            prompts.append(prompt)
            lengths.append(int(len(entry["output"].split(" ")) * WORDS_PER_TOKEN))
    return prompts, lengths


def read_flags():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-v", "--verbose", action="store_true")
    parser.add_argument("-u", "--url", help="the server's address")
    parser.add_argument("-i", "--protocol", choices=("http", "grpc"), default="http")
    parser.add_argument("-c", "--concurrency", type=int, default=128, help="requests at once")
    parser.add_argument("--max_input_len", type=int, required=True, help="of a prompt, in tokens")
    parser.add_argument("--dataset", required=True, help="JSON: a list of objects with input, instruction and output")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
