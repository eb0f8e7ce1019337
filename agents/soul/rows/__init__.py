"""Task files and the rows in them: read, shorten, compare with evaluated rows; the card beside a file."""
