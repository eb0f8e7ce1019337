"""Importing this installs our attention, engine and micro-batches; `external_lib` makes verl do so in each worker."""

import ditto.model.attention  # noqa: F401  (registers `packed` with transformers)
import ditto.model.engine  # noqa: F401  (registers itself with verl)
from ditto.model.prefix_tree import micro_batches

micro_batches.install()
