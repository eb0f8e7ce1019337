"""The processes of a training run, from their start to their end.

ranks           starts one process per device and reports how a failed one ended
stop            how the processes learn that they must stop
checkpoints     saves and loads checkpoints, and chooses the one to resume from
soul_probe      evaluates a checkpoint on SOUL during the training
trained_data    what a checkpoint was trained on, compared when a run resumes
"""
