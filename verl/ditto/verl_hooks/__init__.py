"""The modules that verl loads: the plug-in entry point, the CPU platform, its patches, and the config of workers."""
