"""The checkpoint folders of FasterTransformer, read as if Hugging Face's libraries had saved them."""
