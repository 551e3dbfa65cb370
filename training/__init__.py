"""How the language model that ships with Trireme is made; not part of the installed package."""
