"""Builders that turn public benchmark sources into the parquet files the tasks read.

One module a task, run from the repository root: `python -m data.hitom convert SRC.json --out FILE.parquet`.
Downloads and parquet files that land in this folder are git-ignored; only the builders are versioned.
"""
