"""Asks models to continue two texts and prints what came back: python client.py --model_name qwen2,llama2"""

from __future__ import annotations

import argparse
import sys
import time

import numpy as np
import tritonclient.http as httpclient
from tritonclient.utils import InferenceServerException

PROMPTS = ("I am", "you are")
NOT_FOUND = ("400", "404")  # what servers answer for a model that they do not have


def main() -> int:
    arguments = parse_arguments()
    client = httpclient.InferenceServerClient(
        arguments.url, connection_timeout=arguments.timeout, network_timeout=arguments.timeout
    )
    failures = [name for name in arguments.model_name if not ask(client, name, arguments.url)]
    return 1 if failures else 0


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    names = {"type": lambda text: [name.strip() for name in text.split(",")], "default": ["llama2"]}
    parser.add_argument("--model_name", help="model names with commas between them", **names)
    parser.add_argument("-u", "--url", default="localhost:8000", help="host and port of the server")
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds to wait for an answer")
    return parser.parse_args()


def ask(client: httpclient.InferenceServerClient, name: str, url: str) -> bool:
    """Prints the answer or the reason why there is none; whether there was one."""
    print(f"----- Processing: model {name} ----- ")
    texts = np.array(PROMPTS, dtype=np.object_)
    tensor = httpclient.InferInput("INPUT0", list(texts.shape), "BYTES").set_data_from_numpy(texts)
    output = httpclient.InferRequestedOutput("OUTPUT0")
    began = time.time()
    try:
        answer = client.infer(model_name=name, inputs=[tensor], outputs=[output])
    except InferenceServerException as error:
        is_unknown = error.status() in NOT_FOUND and "unknown model" in str(error.message())
        print(f"Model {name} {'not found' if is_unknown else 'failed'}! skipping: {error.message()}")
        return False
    except OSError as error:
        print(f"Model {name} failed! skipping: no answer from {url}: {error}")
        return False
    seconds = time.time() - began
    print(f"-----Stats: model {name} ----- ")
    print(f"http client out: {output}")
    print(f"Output: {answer.as_numpy('OUTPUT0')}")
    print(f"Time taken: {seconds}")
    return True


if __name__ == "__main__":
    sys.exit(main())
