"""What needs no encoder, and is compared with one: a bag of words for sentences, a conditional
random field (CRF) for words with tags; and both kinds of predictions together."""
