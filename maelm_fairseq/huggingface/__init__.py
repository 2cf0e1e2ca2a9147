"""To Hugging Face: `export` writes a folder that `AutoModel.from_pretrained` loads, without importing transformers."""
