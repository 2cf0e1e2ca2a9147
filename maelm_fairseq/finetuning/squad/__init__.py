"""Question answering as in SQuAD: the pattern for a fine-tuning task of your own."""

from . import squad_task  # noqa: F401  registers the task and its criterion
