"""What we add to the models that verl trains: their attention. The modules here run with torch and transformers alone."""
