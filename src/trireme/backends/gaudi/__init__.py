"""Intel Gaudi: model files written for it run where there is none, and language models get the shapes it likes."""
