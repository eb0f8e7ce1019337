"""Evaluate a model on SOUL: any OpenAI-compatible endpoint or checkpoint, 27 sets, one table.

    soul evaluate --help          a model behind an API; --rescore: another judge over saved episodes
    soul evaluate local --help    checkpoints, served by vLLM
    soul report RUN               write the outputs again, from the journal
    soul compare RUN_A RUN_B      compare two runs row by row; soul compare table: many runs in one table

Files:
    __main__.py, local.py         the two commands
    runner.py                     one evaluation, from its options to its outputs

Folders, each of which imports only those above it:
    run/        options.py (command line), settings.py (what identifies a run), short_names.py (sets, checkpoints);
                before the first sample: drawing.py (which rows), plan.py, preflight.py, judge_check.py;
                samples: engine.py, schedule.py, progress.py, failures.py, ctrl_c.py, rescore.py (new verdicts);
                on disk: journal.py, run_folder.py; our own models: checkpoint.py, weights.py, vllm_server.py
    numbers/    results.py (a run), set_result.py, row_result.py, set_score.py (sets scored as a whole), bootstrap.py
                (intervals), breakdown.py (groups of rows), set_warnings.py
    tables/     run_table.py (one run), side_by_side.py (several), notes.py (the text around them), samples_table.py
                (samples.parquet), answers.py (question, right and given answer)
    report/     report.html: overview.py and set_detail.py (the page), packing.py (the samples in it); outputs.py
                writes it with results.json, table.md and samples.parquet, from a run's journal
    wandb_log.py    results in Weights & Biases
"""
