"""Raw text to binarized data, and texts of the package index; without torch and fairseq."""
