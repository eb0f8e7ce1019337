"""From one row to training sequences.

layouts             the layouts in which corpora come; columns that are not supported
conversation        a row as a conversation, and which of its turns are trained
messages            messages and tools as files of many writers hold them
train_roles         which side is trained in a source, by its name; the sources of the OdysSim corpus
documents           documents as token ids, several in a sequence
rendering           a conversation as token ids, with the model's chat template
sequence            a training sequence; one that is too long is dropped, cut, or an error
"""
