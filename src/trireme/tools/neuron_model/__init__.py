"""`trireme neuron-model`: a model folder for a file that was compiled for NeuronCores."""
