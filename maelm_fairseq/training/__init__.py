"""What is hooked into the commands of fairseq that train and validate."""
