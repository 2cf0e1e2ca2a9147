"""Evaluation of encoders: probes of frozen features, minimal pairs, held-out text."""
