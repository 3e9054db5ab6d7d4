"""Loaders of the data the networks are trained on; each takes the directory it lies in."""
