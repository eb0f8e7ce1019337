"""Upload a checkpoint or training files, with their card, to the Hugging Face hub: `soul push --help`.

contents.py        which files of a checkpoint or of training data are uploaded, and which folders are refused
dataset_card.py    README.md of a dataset, made from the data cards
upload.py          the upload, with huggingface_hub, and what must not be published
keys.py            files that look like keys
"""
