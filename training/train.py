"""Trains the shipped model on one GPU (or, very small, on a CPU) within a given time, and writes its folder.

python3 -m training.train --data training/data --out scribe --minutes 8
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # so that it also runs by its path

import argparse
import math
import signal
import time
from dataclasses import dataclass, field
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import Tensor

from training.batches import TrainingData, load_data
from training.checkpoint import BEGIN_ID, Losses, save
from training.model import Decoder, ModelSize
from training.samples import show_samples

CLOSING_S = 30.0
"""What is kept of the time for the last evaluation, the files and the samples."""
COMPILE_LIMIT_S = 60


@dataclass
class Run:
    """One training: what it works on, and how far it is."""

    options: argparse.Namespace
    model: Decoder
    data: TrainingData
    device: str
    began: float
    learner: Any = None
    optimizer: Any = None
    steps: int = 0
    best: Losses | None = None
    best_state: dict[str, Tensor] = field(default_factory=dict)
    is_stopped: bool = False

    @property
    def progress(self) -> float:
        """From 0 to 1, by time or by steps, whichever is further."""
        room = max(1.0, self.options.minutes * 60 - CLOSING_S)
        done = (time.monotonic() - self.began) / room
        if self.options.steps:
            done = max(done, self.steps / self.options.steps)
        return min(1.0, done)

    @property
    def tokens(self) -> int:
        return self.steps * self.options.batch * self.options.context


def main(arguments: list[str] | None = None) -> None:
    options = _parse(arguments)
    began = time.monotonic()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(options.seed)
    torch.set_float32_matmul_precision("high")
    data = load_data(options.data / "tokens.npz", options.context, BEGIN_ID, device)
    tokenizer = Tokenizer.from_file(str(options.data / "tokenizer.json"))
    size = ModelSize(
        tokenizer.get_vocab_size(),
        options.hidden,
        options.layers,
        options.heads,
        options.kv_heads,
        options.mlp,
        options.context,
    )
    model = Decoder(size, dropout=0.0).to(device).eval()
    parameters = sum(parameter.numel() for parameter in model.parameters())
    print(f"{device}: {parameters / 1e6:.2f} million parameters, torch {torch.__version__}", flush=True)
    run = Run(options, model, data, device, began)
    run.learner = _learner(run)
    run.optimizer = _optimizer(run.learner, options, device)
    for name in (signal.SIGTERM, signal.SIGINT):
        signal.signal(name, lambda *_: setattr(run, "is_stopped", True))
    _train(run)
    model.load_state_dict(run.best_state)
    samples = show_samples(model, tokenizer, device) if options.samples else ""
    _save(run, samples)


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("training/data"))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=8.0, help="everything is done after so long")
    parser.add_argument("--steps", type=int, default=0, help="ends sooner, after so many steps; 0: by time alone")
    parser.add_argument("--batch", type=int, default=256, help="rows of a step")
    size = ModelSize()
    for name in ("hidden", "layers", "heads", "kv_heads", "mlp", "context"):
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=getattr(size, name))
    parser.add_argument("--rate", type=float, default=2e-3, help="the highest learning rate")
    parser.add_argument("--weight-decay", type=float, default=0.1)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument(
        "--chat-share", type=float, nargs=2, default=(0.1, 0.6), help="of rows, at the start and the end"
    )
    parser.add_argument("--evaluate-every", type=float, default=20.0, help="seconds")
    parser.add_argument("--dtype", choices=("float16", "bfloat16", "float32"), default="float16", help="of the file")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--no-compile", dest="compile", action="store_false")
    parser.add_argument("--no-samples", dest="samples", action="store_false")
    return parser.parse_args(arguments)


def _optimizer(model: Decoder, options: argparse.Namespace, device: str) -> torch.optim.Optimizer:
    matrices = [parameter for parameter in model.parameters() if parameter.dim() >= 2]
    vectors = [parameter for parameter in model.parameters() if parameter.dim() < 2]
    groups = [{"params": matrices, "weight_decay": options.weight_decay}, {"params": vectors, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=options.rate, betas=(0.9, 0.95), fused=device == "cuda")


def _learner(run: Run) -> Decoder:
    """The model that is trained: it shares its weights with the one that is measured, and is compiled where that works.

    Compiling that takes too long is given up, and the plain model is trained.
    """
    if run.options.compile:
        began = time.monotonic()
        learner = _twin(run)
        learner.compile_parts()
        previous = signal.signal(signal.SIGALRM, _too_late)
        signal.alarm(COMPILE_LIMIT_S)
        try:
            _loss(run, learner, *_batch(run)).backward()
            learner.zero_grad(set_to_none=True)
            print(f"compiled in {time.monotonic() - began:.0f} s", flush=True)
            return learner
        except Exception as error:
            print(f"not compiled: {type(error).__name__}: {str(error)[:300]}", flush=True)
        finally:
            signal.alarm(0)
            signal.signal(signal.SIGALRM, previous)
    return _twin(run)


def _twin(run: Run) -> Decoder:
    twin = Decoder(run.model.size, run.options.dropout).to(run.device)
    twin.load_state_dict(run.model.state_dict(), assign=True)
    for parameter in twin.parameters():
        parameter.requires_grad_(True)
    return twin.train()


def _too_late(*_: object) -> None:
    raise TimeoutError(f"compiling took more than {COMPILE_LIMIT_S} s")


def _train(run: Run) -> None:
    evaluated = reported = time.monotonic()
    reported_tokens = 0
    while not run.is_stopped and run.progress < 1.0:
        loss = _step(run)
        now = time.monotonic()
        if run.steps % 20 == 0 and now - reported >= 5.0:
            speed = (run.tokens - reported_tokens) / (now - reported)
            reported, reported_tokens = now, run.tokens
            print(
                f"{now - run.began:5.0f} s  step {run.steps:6d}  loss {loss.item():.3f}  {speed / 1e6:.2f} M tokens/s",
                flush=True,
            )
        if now - evaluated >= run.options.evaluate_every:
            _evaluate(run)
            evaluated = time.monotonic()
    _evaluate(run)


def _step(run: Run) -> Tensor:
    rate = run.options.rate * _schedule(run.progress)
    for group in run.optimizer.param_groups:
        group["lr"] = rate
    loss = _loss(run, run.learner, *_batch(run))
    loss.backward()
    torch.nn.utils.clip_grad_norm_(run.learner.parameters(), 1.0)
    run.optimizer.step()
    run.optimizer.zero_grad(set_to_none=True)
    run.steps += 1
    if run.device == "cuda" and run.steps % 10 == 0:
        torch.cuda.synchronize()  # the clock steers the rate: steps in the queue have to be few
    return loss.detach()


def _schedule(progress: float) -> float:
    """A short rise, then half a cosine down to a fiftieth."""
    rise = 0.02
    if progress < rise:
        return 0.02 + 0.98 * progress / rise
    return 0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * (progress - rise) / (1 - rise)))


def _batch(run: Run) -> tuple[Tensor, Tensor]:
    first, last = run.options.chat_share
    return run.data.mixed(run.options.batch, run.options.context, first + (last - first) * run.progress)


def _loss(run: Run, model: Decoder, ids: Tensor, targets: Tensor) -> Tensor:
    with torch.autocast(run.device, dtype=torch.bfloat16, enabled=run.device == "cuda"):
        return model.loss(ids, targets)


@torch.no_grad()
def _evaluate(run: Run) -> None:
    """Measures on what was held back; the best weights are kept and written at once."""
    rows = min(256, run.options.batch * 4)
    found = []
    for stream in (run.data.held_text, run.data.held_chat):
        ids, targets = stream.spread_rows(rows, run.options.context)
        parts = [_loss(run, run.model, a, b) for a, b in zip(ids.split(64), targets.split(64), strict=True)]
        found.append(float(torch.stack(parts).mean()))
    losses = Losses(*found)
    is_best = run.best is None or losses.score < run.best.score
    mark = "  best" if is_best else ""
    print(
        f"{time.monotonic() - run.began:5.0f} s  step {run.steps:6d}  held back: text {losses.text:.4f} "
        f"chat {losses.chat:.4f}  {run.tokens / 1e6:.0f} M tokens{mark}",
        flush=True,
    )
    if is_best:
        run.best = losses
        run.best_state = {name: tensor.detach().clone() for name, tensor in run.model.state_dict().items()}
        _save(run, "")


def _save(run: Run, samples: str) -> None:
    assert run.best is not None
    spent = time.monotonic() - run.began
    notes = (
        f"Loss on text that was held back: {run.best.text:.3f} nats per token; on answers that were held back: "
        f"{run.best.chat:.3f}. Trained on {run.tokens / 1e6:.0f} million tokens ({run.steps} steps) in "
        f"{spent / 60:.1f} minutes."
    )
    if samples:
        notes += f"\n\n## Samples\nQuestions are answered greedily.\n```\n{samples}\n```"
    size = save(run.options.out, run.options.data, run.best_state, run.model.size, run.options.dtype, notes)
    if samples:
        print(f"{size / 1e6:.2f} MB in {run.options.out}. {notes.splitlines()[0]}", flush=True)


if __name__ == "__main__":
    main()
