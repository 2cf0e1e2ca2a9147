"""What everything stands on: errors, files, provenance, signals; without torch and fairseq."""
