"""Evaluate a model on SOUL: any OpenAI-compatible endpoint or checkpoint, 27 sets, one table.

    python -m soul.evaluate --help          a model behind an API; --rescore: another judge over saved episodes
    python -m soul.evaluate.local --help    checkpoints, served by vLLM
    python -m soul.evaluate.report RUN      the outputs again, from the journal
    python -m soul.compare RUN_A RUN_B      two runs, row by row

A run:
    command.py       what the commands share: options, and a run from its settings to its outputs
    settings.py      which model, judges and rows; what makes two runs different runs
    engine.py        the samples: sessions of the driver without feedback; rescore.py judges saved ones again
    journal.py       every finished sample on disk at once; run_folder.py: as those read it who come later
    progress.py      what is seen meanwhile
    checkpoint.py    what can be served, and its identity; vllm_server.py: its server; local.py: one after another

Its numbers:
    results.py       from samples to numbers, with row_result.py, set_result.py and bootstrap.py: means, intervals,
                     failures as bounds, cost; breakdown.py: by what the rows belong to
    published.py     the numbers of the paper and of the model card

Its outputs:
    outputs.py       all of them: table.py (terminal and Markdown), samples_table.py (parquet), report/ (HTML)
    side_by_side.py  several models in one table
    export/          for lm-eval, Weights & Biases and TensorBoard
"""
