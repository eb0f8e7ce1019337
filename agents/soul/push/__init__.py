"""Upload a checkpoint and its card to the Hugging Face hub: `soul push --help`.

checkpoint_files.py   which files of a folder are uploaded, and which folders are refused
keys.py               files that look like keys
hub.py                the upload, with huggingface_hub
"""
