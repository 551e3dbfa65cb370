"""Sends text to the `shout` model over HTTP; needs tritonclient[http]."""

import argparse

import numpy as np
import tritonclient.http as triton


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("text", nargs="?", default="good morning")
    parser.add_argument("--url", default="localhost:8000")
    arguments = parser.parse_args()

    with triton.InferenceServerClient(arguments.url) as client:
        text = triton.InferInput("text_input", [1], "BYTES")
        text.set_data_from_numpy(np.array([arguments.text], dtype=np.object_))
        result = client.infer("shout", [text])
        print(result.as_numpy("text_output")[0].decode("utf-8"))


if __name__ == "__main__":
    main()
