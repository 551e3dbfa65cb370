"""Lets the model write: completions and chats that show what it has learned."""

from __future__ import annotations

import torch
from tokenizers import Tokenizer

from training.chat_format import BEGIN, TURN_BEGIN, TURN_END
from training.checkpoint import EOS_IDS
from training.model import Decoder

PROMPTS = ("The captain looked", "In the beginning", "It is a truth", "ROMEO.\n", "Once upon a time")
QUESTIONS = (
    "Hello!",
    "Who are you?",
    "What is a lantern?",
    "What is a horse?",
    "What is the capital of France?",
    "Who wrote Moby Dick?",
    "What is 7 plus 5?",
    "What is 34 + 48?",
    "What is the opposite of hot?",
    "Spell the word house.",
    "Tell me a story.",
    "Use the word river in a sentence.",
    "Repeat after me: the quick brown fox",
    "What is the weather today?",
    "What can you do?",
    "What does to wander mean?",
)


def show_samples(model: Decoder, tokenizer: Tokenizer, device: str) -> str:
    """Prints and returns what the model writes; greedy for questions, drawn for completions."""
    model.eval()
    torch.manual_seed(0)
    lines = []
    for prompt in PROMPTS:
        lines.append(f"> {prompt!r}\n  {_continue(model, tokenizer, BEGIN + prompt, device, 60, 0.8)!r}")
    for question in QUESTIONS:
        asked = f"{BEGIN}{TURN_BEGIN}user\n{question}{TURN_END}\n{TURN_BEGIN}assistant\n"
        lines.append(f"> {question}\n  {_continue(model, tokenizer, asked, device, 80, 0.0)}")
    text = "\n".join(lines)
    print(text, flush=True)
    return text


@torch.no_grad()
def _continue(model: Decoder, tokenizer: Tokenizer, prompt: str, device: str, count: int, temperature: float) -> str:
    ids = tokenizer.encode(prompt, add_special_tokens=False).ids
    written: list[int] = []
    for _ in range(count):
        window = torch.tensor([(ids + written)[-model.size.context :]], device=device)
        with torch.autocast(device, dtype=torch.bfloat16, enabled=device == "cuda"):
            logits = model(window)[0, -1].float()
        if temperature:
            token = int(torch.multinomial(torch.softmax(logits / temperature, dim=-1), 1))
        else:
            token = int(logits.argmax())
        if token in EOS_IDS:
            break
        written.append(token)
    return tokenizer.decode(written)
