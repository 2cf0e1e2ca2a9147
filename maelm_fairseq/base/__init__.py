"""What everything else builds on: errors, files, provenance, signals; without torch and fairseq."""
