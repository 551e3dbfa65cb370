"""PyTorch for NeuronCores, for models that import it where there is none."""
