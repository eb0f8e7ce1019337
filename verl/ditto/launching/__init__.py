"""From a command line to a checked config and a connected Ray cluster."""
