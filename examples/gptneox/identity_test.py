"""Asks `fastertransformer` ten times to go on with a batch of token ids, writes that to triton_out, and measures."""

import argparse
import queue
import statistics
import sys
import time

import numpy as np
import tritonclient.grpc as grpcclient
import tritonclient.http as httpclient
from tritonclient.utils import np_to_triton_dtype

MODEL = "fastertransformer"
REQUESTS = 10
END_ID = 50256
LARGEST_ID = 27221


def main():
    flags = read_flags()
    prompts = start_ids(flags)
    if flags.warm_up:
        print("[INFO] sending requests to warm up")
        send_requests(flags, prompts, 2)
    time.sleep(5)
    latencies = []
    for _ in range(flags.num_runs):
        began = time.monotonic()
        send_requests(flags, prompts, REQUESTS)
        latencies.append((time.monotonic() - began) * 1000 / REQUESTS)
    if flags.num_runs > 1:
        print(latencies)
    print(f"[INFO] execution time: {statistics.mean(latencies)} ms")


def start_ids(flags):
    """Random ones, or always the same: eight rows of eight, of which the last two repeat the first two."""
    if flags.random_start_ids:
        return np.random.default_rng().integers(0, 50255, (flags.batch_size, flags.start_len), np.uint32)
    rows = np.random.default_rng(6).integers(4, LARGEST_ID + 1, (8, 8), np.uint32)
    rows[6:] = rows[:2]
    return rows


def send_requests(flags, prompts, count):
    results = []
    with client_of(flags) as client:
        for _ in range(count):
            print("set request")
            results.append(ask(client, flags, prompts))
            print("get request")
    for result in results:
        for line in ("wait result return 0000", "wait result return 1111", "get results"):
            print(f"{line}\n")
        ids = result.as_numpy("output_ids")
        print("get results as output_ids\n")
        if ids is None:
            sys.exit("error: expected 'output_ids'")
        np.savetxt("triton_out", ids.reshape(-1, ids.shape[-1]), fmt="%u")
        print("output_ids is received")
        print(ids.shape)
        print(ids)


def ask(client, flags, prompts):
    inputs = inputs_of(flags, prompts)
    if not flags.decoupled:
        return client.infer(MODEL, inputs)
    answers = queue.Queue()
    client.start_stream(lambda result, error: answers.put(error or result))
    client.async_stream_infer(MODEL, inputs, enable_empty_final_response=True)
    results = []
    while True:
        answer = answers.get()
        if isinstance(answer, Exception):
            raise answer
        if answer.get_response().outputs:
            results.append(answer)
        if answer.get_response().parameters["triton_final_response"].bool_param:
            break
    client.stop_stream()
    if len(results) != flags.output_len:
        raise RuntimeError(f"expected {flags.output_len} responses, found {len(results)}")
    return results[-1]


def inputs_of(flags, prompts):
    count, size = prompts.shape
    whole = {
        "input_lengths": size,
        "request_output_len": flags.output_len,
        "runtime_top_k": flags.topk,
        "beam_width": flags.beam_width,
        "start_id": END_ID,
        "end_id": END_ID,
    }
    real = {
        "runtime_top_p": flags.topp,
        "beam_search_diversity_rate": 0,
        "temperature": 1,
        "len_penalty": 1,
        "repetition_penalty": 1,
    }
    no_words = np.tile(np.array([[[0], [-1]]], np.int32), (count, 1, 1))
    arrays = {
        "input_ids": prompts,
        **{name: np.full((count, 1), value, np.uint32) for name, value in whole.items()},
        **{name: np.full((count, 1), value, np.float32) for name, value in real.items()},
        "random_seed": np.zeros((count, 1), np.uint64),
        "is_return_log_probs": np.ones((count, 1), bool),
        "bad_words_list": no_words,
        "stop_words_list": no_words,
    }
    found = []
    for name, array in arrays.items():
        found.append(library_of(flags).InferInput(name, array.shape, np_to_triton_dtype(array.dtype)))
        found[-1].set_data_from_numpy(array)
    return found


def library_of(flags):
    return httpclient if flags.protocol == "http" else grpcclient


def client_of(flags):
    url = flags.url or ("localhost:8000" if flags.protocol == "http" else "localhost:8001")
    return library_of(flags).InferenceServerClient(url, verbose=flags.verbose)


def read_flags():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-v", "--verbose", action="store_true")
    parser.add_argument("-u", "--url", help="the server's address")
    parser.add_argument("-i", "--protocol", choices=("http", "grpc"), default="http")
    parser.add_argument("-r", "--random_start_ids", action="store_true", help="prompts of random token ids")
    parser.add_argument("-d", "--decoupled", action="store_true", help="the model sends a response for every token")
    parser.add_argument("-w", "--warm_up", action="store_true", help="ask twice before the time counts")
    parser.add_argument("-b", "--batch_size", type=int, default=8, help="of random prompts")
    parser.add_argument("-beam", "--beam_width", type=int, default=1)
    parser.add_argument("-topk", "--topk", type=int, default=1)
    parser.add_argument("-topp", "--topp", type=float, default=0.0)
    parser.add_argument("-s", "--start_len", type=int, default=8, help="of random prompts")
    parser.add_argument("-o", "--output_len", type=int, default=24, help="how many tokens to write")
    parser.add_argument("-n", "--num_runs", type=int, default=1, help="how often to measure")
    flags = parser.parse_args()
    if flags.decoupled and flags.protocol == "http":
        parser.error("--decoupled needs a stream: -i grpc")
    return flags


if __name__ == "__main__":
    main()
