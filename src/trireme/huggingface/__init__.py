"""What is known of Hugging Face's libraries, files and hub without importing any of them."""
