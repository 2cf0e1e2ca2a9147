"""What all tasks of this plugin have in common."""

import copy
from dataclasses import fields

from omegaconf import OmegaConf

from .base.errors import UsageError
from .base.option_fields import check_ranges
from .data.epochs import ResumableIterator
from .fairseq_api import FairseqTask
from .precision import check_precision

LOSSES = ["loss", "ppl"]  # of what validation logs, those of which less is better

# Options of fairseq's batch iterators: the sizes of batches, with their defaults, and those that
# have no effect here.
BATCH_OPTIONS = {"max_tokens": None, "max_sentences": None, "required_batch_size_multiple": 1}
IGNORED_OPTIONS = ["ignore_invalid_inputs", "disable_iterator_cache", "update_epoch_batch_itr"]


class MaeLmBaseTask(FairseqTask):
    """A task of one dictionary, with `<mask>`, that uses every sequence of its data.

    Its `cfg` is a `PrecisionConfig`.
    """

    def __init__(self, cfg, dictionary):
        super().__init__(cfg)
        self.dictionary = dictionary

    @classmethod
    def setup_task(cls, cfg, **kwargs):
        """The task of a configuration, which must be in range and without contradictions."""
        check_ranges(cfg, OmegaConf.get_type(cfg))
        check_precision(cfg)
        return cls(cfg)

    @property
    def source_dictionary(self):
        return self.dictionary

    target_dictionary = source_dictionary

    def get_batch_iterator(
        self, dataset, *, max_positions=None, epoch=1, grouped_shuffling=False, **options
    ):
        """As fairseq's, but a `ResumableIterator`, and a new one each epoch.

        `options` are fairseq's others.
        """
        if grouped_shuffling:
            raise UsageError(
                "--grouped-shuffling leaves out the last batches of every epoch: remove it"
            )
        # A copy, since training and validation may share the dataset, and each sets its own epoch.
        dataset = copy.copy(dataset)
        dataset.set_epoch(epoch)
        longest = dataset.sizes.max()
        if max_positions is not None and longest > max_positions:  # fairseq would drop them
            raise UsageError(
                f"the longest sequence has {longest} tokens, but a batch may have {max_positions}: "
                "raise --max-tokens"
            )
        batching = {name: options.pop(name, default) for name, default in BATCH_OPTIONS.items()}
        options = {name: value for name, value in options.items() if name not in IGNORED_OPTIONS}
        return ResumableIterator(dataset, batching, epoch=epoch, **options)


def make_task(task_class, **options):
    """A registered task outside fairseq's commands.

    Options that fairseq takes from other sections are None, except for the seed, which is 1.
    """
    config_class = task_class.__dataclass  # fairseq registers it so
    options_of_run = {}
    for field in fields(config_class):
        if str(field.default).startswith("${"):
            options_of_run[field.name] = None
    cfg = config_class(**{**options_of_run, "seed": 1, **options})
    return task_class.setup_task(cfg)


def check_best_checkpoint_options(cfg, logged, scores):
    """Refuses to choose the best checkpoint by what is not logged, or by the wrong end of it.

    Args:
        cfg: has best_checkpoint_metric and maximize_best_checkpoint_metric
        logged: names of what validation logs
        scores: names of those of which more is better
    """
    metric = cfg.best_checkpoint_metric or "loss"
    if metric not in logged:
        raise UsageError(
            f"--best-checkpoint-metric {metric}: validation logs {', '.join(logged)}; choose one"
        )
    maximize = cfg.maximize_best_checkpoint_metric
    if metric in scores and not maximize:
        raise UsageError(
            f"--best-checkpoint-metric {metric} needs --maximize-best-checkpoint-metric"
        )
    if metric in LOSSES and maximize:
        raise UsageError(
            f"--maximize-best-checkpoint-metric: the lowest {metric} is the best; leave it out, or "
            "give another --best-checkpoint-metric"
        )
