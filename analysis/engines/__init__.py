"""Other engines: their counts and trees read, transformers' generation recorded, texts compared."""
