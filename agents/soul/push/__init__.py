"""Upload a checkpoint or training files, with their card, to the Hugging Face hub: `soul push --help`.

dataset_card.py    README.md of a dataset, made from the data cards
keys.py            files that look like keys
"""
