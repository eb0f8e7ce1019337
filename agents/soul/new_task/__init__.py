"""`soul init`: a package with a task of your own, made from the files in `template/`."""
