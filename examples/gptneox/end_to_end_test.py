"""Asks the three models one after the other, then the ensemble, for eight prompts, and shows what each gives."""

import argparse
import logging
import sys

import numpy as np
import tritonclient.grpc as grpcclient
import tritonclient.http as httpclient
from tritonclient.utils import np_to_triton_dtype

log = logging.getLogger("end_to_end_test")

PROMPTS = [
    "The Hawks have won in",
    "A list of what to look at before you decide:",
    "\n while (number > 0) { number",
    "About 40% of the members come from",
    "Contents | Last page | Next page",
    "Anna, a sailor from Crete, said that",
    "The Hawks have won in",
    "A list of what to look at before you compare:",
]
BAD_WORDS = ["Hawks, Hawks"] + [""] * 7
STOP_WORDS = [""] * 7 + ["month, month"]
START_ID, END_ID = 220, 50256
TITLES = {
    "preprocessing": ["INPUT_ID", "REQUEST_INPUT_LEN", "REQUEST_OUTPUT_LEN", "BAD_WORDS_IDS", "STOP_WORDS_IDS"],
    "fastertransformer": ["output_ids", "sequence_length", "response_input_lengths"],
    "postprocessing": ["OUTPUT"],
    "ensemble": ["OUTPUT_0", "sequence_length"],
}
PROBABILITIES = ["cum_log_probs", "output_log_probs"]
RULE = "=" * 12


def main():
    flags = read_flags()
    logging.basicConfig(
        level=logging.DEBUG if flags.verbose else logging.INFO,
        format="%(asctime)s %(name)s:%(lineno)d [%(levelname)s] %(message)s",
    )
    logging.getLogger("geventhttpclient").setLevel(logging.WARNING)
    try:
        with client_of(flags) as client:
            ask_one_by_one(Asker(client, flags), flags)
    except Exception as error:
        log.error(error)
        return 1
    return 0


def ask_one_by_one(asker, flags):
    texts = {"BAD_WORDS_DICT": strings(BAD_WORDS), "STOP_WORDS_DICT": strings(STOP_WORDS)}
    lengths = each(flags.output_len, np.uint32)
    log.info("%s Preprocessing %s", RULE, RULE)
    before = asker.ask("preprocessing", QUERY=strings(PROMPTS), REQUEST_OUTPUT_LEN=lengths, **texts)
    options = options_of(flags)
    written = asker.ask(
        "fastertransformer",
        input_ids=before["INPUT_ID"],
        input_lengths=before["REQUEST_INPUT_LEN"],
        request_output_len=before["REQUEST_OUTPUT_LEN"],
        bad_words_list=before["BAD_WORDS_IDS"],
        stop_words_list=before["STOP_WORDS_IDS"],
        **options,
        is_return_log_probs=each(flags.return_log_probs, bool),
    )
    log.info("TOKENS_BATCH: %s", written["output_ids"])
    log.info("RESPONSE_INPUT_LENGTHS: %s", written["response_input_lengths"])
    asker.ask("postprocessing", TOKENS_BATCH=written["output_ids"], sequence_length=written["sequence_length"])
    asker.ask(
        "ensemble",
        INPUT_0=strings(PROMPTS),
        INPUT_1=lengths,
        INPUT_2=strings(BAD_WORDS),
        INPUT_3=strings(STOP_WORDS),
        **options,
        is_return_log_probs=each(True, bool),
    )


def options_of(flags):
    """How tokens are chosen, and where answers end."""
    whole = {"runtime_top_k": flags.topk, "beam_width": flags.beam_width}
    if flags.model_variant == "gpt":
        whole |= {"start_id": START_ID, "end_id": END_ID}
    real = {
        "runtime_top_p": flags.topp,
        "beam_search_diversity_rate": 0,
        "temperature": 1,
        "len_penalty": 1,
        "repetition_penalty": 1,
    }
    return {
        **{name: each(value, np.uint32) for name, value in whole.items()},
        **{name: each(value, np.float32) for name, value in real.items()},
        "random_seed": each(0, np.uint64),
    }


class Asker:
    """Sends tensors to a model and logs what comes back."""

    def __init__(self, client, flags):
        self.client = client
        self.library = library_of(flags)
        self.shows_probabilities = flags.return_log_probs

    def ask(self, model, **arrays):
        inputs = []
        for name, array in arrays.items():
            inputs.append(self.library.InferInput(name, array.shape, np_to_triton_dtype(array.dtype)))
            inputs[-1].set_data_from_numpy(array)
        result = self.client.infer(model, inputs)
        names = list(TITLES[model])
        if self.shows_probabilities and not model.endswith("processing"):
            names += PROBABILITIES
        found = {name: result.as_numpy(name) for name in names}
        log.info("%sAfter %s%s", RULE, model, RULE)
        for name, array in found.items():
            log.info("%s: %s", name, array)
        log.info("=" * 43)
        return found


def strings(texts):
    return np.array([[text] for text in texts], np.object_)


def each(value, kind):
    return np.full((len(PROMPTS), 1), value, kind)


def library_of(flags):
    return httpclient if flags.protocol == "http" else grpcclient


def client_of(flags):
    url = flags.url or ("localhost:8000" if flags.protocol == "http" else "localhost:8001")
    return library_of(flags).InferenceServerClient(url)


def read_flags():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-v", "--verbose", action="store_true")
    parser.add_argument("-u", "--url", help="the server's address")
    parser.add_argument("-beam", "--beam_width", type=int, default=1)
    parser.add_argument("-topk", "--topk", type=int, default=1)
    parser.add_argument("-topp", "--topp", type=float, default=0.0)
    parser.add_argument("-i", "--protocol", choices=("http", "grpc"), default="http")
    parser.add_argument("--return_log_probs", action="store_true", help="show the logarithms of probabilities")
    parser.add_argument("--output-len", type=int, default=24, help="how many tokens to write")
    parser.add_argument(
        "--model-variant", choices=("gpt", "bloom"), default="gpt", help="gpt sends start_id and end_id"
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
