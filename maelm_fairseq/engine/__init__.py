"""Everything that changes or works around fairseq; `replaced` says which of its functions are replaced, and when."""
