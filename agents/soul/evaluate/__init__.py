"""Evaluate a model on SOUL: any OpenAI-compatible endpoint or checkpoint, 27 sets, one table.

soul evaluate --help          a model behind an API; --rescore: another judge over saved episodes
soul evaluate local --help    checkpoints, served by vLLM
soul report RUN               write the outputs again, from the journal
soul compare RUN_A RUN_B      compare runs row by row; with --table: their scores in one table

command.py, local.py          the two commands; runner.py: one evaluation, from its options to its outputs
run/        options.py (command line), settings.py (what identifies a run, and its rows); before the first sample:
            plan.py, preflight.py, judge_check.py; samples: engine.py, progress.py, failures.py, rescore.py; on disk:
            journal.py, run_folder.py; our own models: checkpoint.py, vllm_server.py
numbers/    results.py (a run, and its groups of rows), set_result.py (a set and its rows)
tables/     run_table.py (one run, its warnings and notes), samples_table.py
page.py     the evaluation on the pages; outputs.py writes report.html, results.json, table.md and samples.parquet
"""
