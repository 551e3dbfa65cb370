"""Makes a tiny GPT-NeoX with random weights, converts it for FasterTransformer, and writes its tokenizer twice."""

import shutil
import subprocess
import sys
from itertools import product
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

END = "<|endoftext|>"
VOCABULARY = 50432
"""As large as GPT-NeoX's, so that its clients' token ids are in it."""


def main():
    folder = Path(__file__).parent
    for model in ("preprocessing", "postprocessing"):
        make_tokenizer().save(str(folder / model / "1" / "20B_tokenizer.json"))
    config = GPTNeoXConfig(
        vocab_size=VOCABULARY,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=1024,
        bos_token_id=0,
        eos_token_id=0,
    )
    torch.manual_seed(0)
    version = folder / "fastertransformer" / "1"
    GPTNeoXForCausalLM(config).save_pretrained(version / "tiny-gptneox")
    shutil.rmtree(version / "1-gpu", ignore_errors=True)
    flags = ["-i_g", "1", "-m_n", "gptneox", "-i", str(version / "tiny-gptneox"), "-o", str(version)]
    subprocess.run([str(Path(sys.executable).with_name("trireme")), "convert", "hf-to-ft", *flags], check=True)
    print(f"{version} has a tiny model")


def make_tokenizer():
    """Letters, and made-up words up to the size of the vocabulary, each of which is one token behind a blank."""
    names = [END, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    syllables = [a + b for a, b in product("bdfghjklmnprstvwz", "aeiou")]
    words = ("Ġ" + "".join(parts) for parts in product(syllables, repeat=3))
    names += [next(words) for _ in range(VOCABULARY - len(names))]
    vocabulary = {name: place for place, name in enumerate(names)}
    tokenizer = Tokenizer(models.BPE(vocabulary, [], ignore_merges=True))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([END])
    return tokenizer


if __name__ == "__main__":
    main()
