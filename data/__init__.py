"""Builders that turn public benchmark sources into the parquet files that the tasks read.

Run them from the repository root: `python -m data.hitom convert SRC.json --out FILE.parquet`.

    sets, sources           build the files of all evaluation sets whose sources you have
    source_folders          find the files of a source in clones and folders
    licences                the terms of these sources, and whether rows made from them may be published
    check                   validate task files: schema, lengths, duplicates, overlap with evaluation files
    train, training         build the training files of the paper's ten tasks, each with a data card
    builder_cli, rows       the command line and the parquet file of all builders
    reading                 source files and the fields of their records
    model_stages            ask models to write and check rows

Every other module is the builder of one task (alignx, coser, ..., userllm) or a part of one. Where training rows come
from another source than evaluation rows, they have a builder of their own: mirrorbench_train, twinvoice_train
(twinvoice_people), userllm_train (intents) and sotopia_pairs. hitom_stories generates Hi-ToM stories.

Git ignores downloads and parquet files in this folder; only the builders are versioned.
"""
