"""Runs of fairseq-train from the recipes: options, processes, progress, a GPU's memory; and
fine-tuning over seeds."""
