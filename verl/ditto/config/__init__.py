"""Hydra configs of the trainer; a package so that they travel with the wheel."""
