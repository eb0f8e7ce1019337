"""Task rows as verl's dataloader takes them: dataset, task mixture, prompt lengths."""
