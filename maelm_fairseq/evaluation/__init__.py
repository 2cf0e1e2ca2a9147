"""Evaluation of encoders: probes of frozen features, minimal pairs, held-out text; and a bag of words beside them."""
