"""Hydra configs of the trainer; a package so that the wheel includes them."""
