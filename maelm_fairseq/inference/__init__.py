"""What can be done with a model from Python; `hub.MaeLm` has all of it."""
