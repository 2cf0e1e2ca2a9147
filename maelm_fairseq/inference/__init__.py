"""What a model makes of texts: features, filled masks, scores, predictions, answers."""
