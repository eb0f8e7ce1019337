"""What we change in the models that verl builds: attention over packs, and the head."""
