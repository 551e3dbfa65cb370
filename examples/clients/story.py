"""Prints a story from the `storyteller` model as its words arrive, over a gRPC stream."""

import argparse
import queue

import numpy as np
import tritonclient.grpc as triton


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("beginning", nargs="?", default="Two hundred people")
    parser.add_argument("--url", default="localhost:8001")
    arguments = parser.parse_args()

    text = triton.InferInput("text_input", [1], "BYTES")
    text.set_data_from_numpy(np.array([arguments.beginning], dtype=np.object_))

    answers: queue.Queue = queue.Queue()
    with triton.InferenceServerClient(arguments.url) as client:
        client.start_stream(lambda result, error: answers.put((result, error)))
        client.async_stream_infer("storyteller", [text], enable_empty_final_response=True)
        for word in words(answers):
            print(word, end="", flush=True)
    print()


def words(answers: queue.Queue):
    """The text of each response until the one that is marked as the last."""
    while True:
        result, error = answers.get(timeout=30)
        if error is not None:
            raise error
        if result.as_numpy("text_output") is not None:
            yield result.as_numpy("text_output")[0].decode("utf-8")
        if result.get_response().parameters["triton_final_response"].bool_param:
            return


if __name__ == "__main__":
    main()
