"""The recipe of the paper: launchers, config, and the runs of the ablation."""
