"""To and from Hugging Face."""
