"""Fine-tuning: labelled files, and a task in one file for each kind of label."""
