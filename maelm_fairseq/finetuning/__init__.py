"""Fine-tuning on sentences and pairs; `squad` shows the pattern for a task of one's own."""
