"""From binarized text to masked batches: blocks, masked items, batches, epochs."""
