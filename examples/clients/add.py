"""Adds two vectors with the `adder` model over gRPC."""

import argparse

import numpy as np
import tritonclient.grpc as triton


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", default="localhost:8001")
    client = triton.InferenceServerClient(parser.parse_args().url)

    a = np.array([[1, 2, 3, 4]], dtype=np.float32)
    b = np.array([[10, 20, 30, 40]], dtype=np.float32)
    inputs = [triton.InferInput("A", a.shape, "FP32"), triton.InferInput("B", b.shape, "FP32")]
    inputs[0].set_data_from_numpy(a)
    inputs[1].set_data_from_numpy(b)

    result = client.infer("adder", inputs)
    print(a, "+", b, "=", result.as_numpy("SUM"))


if __name__ == "__main__":
    main()
