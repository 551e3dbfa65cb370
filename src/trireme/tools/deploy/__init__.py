"""From a Hugging Face model to a folder that the server can serve."""
