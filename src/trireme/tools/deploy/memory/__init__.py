"""How much memory a model takes, and how much there is."""
