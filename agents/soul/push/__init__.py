"""Upload a checkpoint or training files, with their card, to the Hugging Face hub: `soul push --help`.

checkpoint_files.py   which files of a checkpoint are uploaded, and which folders are refused
data_files.py         which training files are uploaded, and which licences allow it
dataset_card.py       README.md of a dataset, made from the data cards
upload.py             what both have in common: files, what stays here, what must not be published
keys.py               files that look like keys
hub.py                the upload, with huggingface_hub
"""
