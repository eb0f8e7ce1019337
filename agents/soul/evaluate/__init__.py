"""Evaluate a model on SOUL: any OpenAI-compatible endpoint or checkpoint, 27 sets, one table.

    soul evaluate --help          a model behind an API; --rescore: another judge over saved episodes
    soul evaluate local --help    checkpoints, served by vLLM
    soul report RUN               write the outputs again, from the journal
    soul compare RUN_A RUN_B      compare two runs row by row

Rooms:
    run/        options.py (command line), settings.py (what tells two runs apart), runner.py (from options to outputs),
                engine.py and schedule.py (the samples), rescore.py (saved episodes judged again), journal.py and
                run_folder.py (what is on disk), plan.py and preflight.py (before the first sample), checkpoint.py and
                vllm_server.py (models that we serve)
    numbers/    from samples to numbers: results.py, with row_result.py, set_result.py and bootstrap.py: means,
                intervals, failures as bounds, cost; breakdown.py: by groups of rows
    tables/     the table for terminal and Markdown, several models side by side, samples.parquet
    report/     report.html
    export/     for lm-eval, Weights & Biases and TensorBoard
"""
