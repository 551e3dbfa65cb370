"""Asks `tensorrt_llm` over gRPC for the tokens that follow a text, as a stream or at once, and can stop it midway."""

import argparse
import queue
import sys
import time
from pathlib import Path

import numpy as np
import tritonclient.grpc as grpcclient
from tokenizers import Tokenizer
from tritonclient.utils import np_to_triton_dtype

MODEL = "tensorrt_llm"
REQUEST_ID = "12345"


def main():
    flags = read_flags()
    print("=========")
    tokenizer = Tokenizer.from_file(str(Path(flags.tokenizer_dir) / "tokenizer.json"))
    prompt = tokenizer.encode(flags.text).ids
    with grpcclient.InferenceServerClient(
        flags.url,
        verbose=flags.verbose,
        ssl=flags.ssl,
        root_certificates=flags.root_certificates,
        private_key=flags.private_key,
        certificate_chain=flags.certificate_chain,
    ) as client:
        beams = ask(client, flags, prompt, flags.streaming)
        print("output_ids = ", beams)
        print(f"Input: {flags.text}")
        for beam in beams:
            print(f"Output: {tokenizer.decode(beam[len(prompt) :])}")
        is_right = True
        if flags.check_output:
            expected = ask(client, flags, prompt, not flags.streaming)
            print("expected_output_ids = ", expected)
            is_right = beams == expected
            print("\n=====\n" + ("PASS!" if is_right else "FAIL!") + "\n=====")
    return 0 if is_right else 1


def ask(client, flags, prompt, is_stream):
    """The ids of every beam, with the prompt before them."""
    answers = queue.Queue()
    is_decoupled = client.get_model_config(MODEL).config.model_transaction_policy.decoupled
    if is_stream and not is_decoupled:
        raise SystemExit(f"{MODEL} is not decoupled: it gives answers at once, without --streaming")
    send = sender(client, is_decoupled, answers, flags)
    send(inputs_of(flags, prompt, is_stream), True)
    is_stopped = flags.stop_after_ms > 0
    if is_stopped:
        time.sleep(flags.stop_after_ms / 1000)
        send(stop_inputs(), False)
    beams = received(answers, prompt, is_stream, is_stopped)
    if is_decoupled:
        client.stop_stream()
    return beams


def sender(client, is_decoupled, answers, flags):
    """How requests are sent: on a stream where the model is decoupled. Answers come with what they belong to."""

    def take(result, error):
        answers.put(error or result)

    if is_decoupled:
        client.start_stream(take, stream_timeout=flags.stream_timeout, compression_algorithm=flags.compression)

        def send(inputs, is_first):
            client.async_stream_infer(MODEL, inputs, request_id=REQUEST_ID, enable_empty_final_response=True)

    else:

        def send(inputs, is_first):
            client.async_infer(
                MODEL,
                inputs,
                take,
                request_id=REQUEST_ID,
                compression_algorithm=flags.compression if is_first else None,
            )

    return send


def received(answers, prompt, is_stream, is_stopped):
    """Reads until the request, and the one that stops it, have had their last answers."""
    requests = 2 if is_stopped else 1
    beams = [list(prompt)] if is_stream else []
    is_told = not is_stopped
    while requests:
        answer = answers.get()
        if isinstance(answer, Exception):
            if is_stopped and requests == 1 and "it has ended" in str(answer):
                print("The request had ended before it could be stopped")
                break
            raise SystemExit(f"Received an error from server:\n{answer}")
        final = answer.get_response().parameters.get("triton_final_response")
        requests -= final is None or final.bool_param
        ids = answer.as_numpy("output_ids")
        if ids is None:
            if not is_told:  # the stop is answered, and the stream ends: both without tokens
                print("Got cancellation response from server")
                is_told = True
            continue
        if is_stream:
            beams[0] += ids[0, 0].tolist()
        else:
            print("Got completed request", flush=True)
            beams += ids[0].tolist()
    return beams


def inputs_of(flags, prompt, is_stream):
    return tensors(
        input_ids=np.array([prompt], np.int32),
        input_lengths=np.array([[len(prompt)]], np.int32),
        request_output_len=np.array([[flags.request_output_len]], np.int32),
        beam_width=np.array([[flags.beam_width]], np.int32),
        temperature=np.array([[flags.temperature]], np.float32),
        streaming=np.array([[is_stream]]),
    )


def stop_inputs():
    nothing = np.zeros((1, 1), np.int32)
    return tensors(input_ids=nothing, input_lengths=nothing, request_output_len=nothing, stop=np.array([[True]]))


def tensors(**arrays):
    found = []
    for name, array in arrays.items():
        found.append(grpcclient.InferInput(name, array.shape, np_to_triton_dtype(array.dtype)))
        found[-1].set_data_from_numpy(array)
    return found


def read_flags():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-v", "--verbose", action="store_true")
    parser.add_argument("-u", "--url", default="localhost:8001", help="the server's gRPC address")
    parser.add_argument("--text", default="Born in north-east France, Soyer trained as a", help="the prompt")
    parser.add_argument("-s", "--ssl", action="store_true", help="encrypt the connection")
    parser.add_argument("-t", "--stream-timeout", type=float, help="of a stream, in seconds")
    parser.add_argument("-r", "--root-certificates", help="a file in PEM")
    parser.add_argument("-p", "--private-key", help="a file in PEM")
    parser.add_argument("-x", "--certificate-chain", help="a file in PEM")
    parser.add_argument("-C", "--grpc-compression-algorithm", dest="compression", help="of requests")
    parser.add_argument("-S", "--streaming", action="store_true", help="take tokens as they come")
    parser.add_argument("-c", "--check-output", action="store_true", help="ask the other way too, and compare")
    parser.add_argument("-b", "--beam-width", type=int, default=1)
    parser.add_argument("--temperature", type=float, default=1.0)
    parser.add_argument("--request-output-len", type=int, default=16, help="how many tokens to write")
    parser.add_argument("--stop-after-ms", type=int, default=0, help="stop the request after so long")
    parser.add_argument("--tokenizer_dir", required=True, help="the folder of tokenizer.json")
    parser.add_argument(
        "--tokenizer_type", choices=("auto", "t5", "llama"), default="auto", help="read, and not needed"
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
