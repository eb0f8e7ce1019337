"""What we change in the models that verl builds and trains: attention, head, dtypes."""
