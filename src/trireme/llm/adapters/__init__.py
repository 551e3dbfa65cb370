"""Low-rank adapters (LoRA) beside a model's weights: read from the folders of peft when they are first asked for."""
