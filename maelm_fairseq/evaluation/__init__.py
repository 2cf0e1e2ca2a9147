"""Evaluation of encoders: probes of frozen features, minimal pairs, held-out text.

And what they are compared with: a bag of words.
"""
