"""The evaluation of pretrained encoders that `recipes/evaluate.sh` runs."""
