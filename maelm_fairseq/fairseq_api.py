"""All of fairseq that this package uses, imported in one place and quietly.

On import, fairseq configures the root logger and prints warnings, which must not reach a program
that only uses the hub. On some Pythons it cannot be imported at all, which is then reported in one
line. fairseq's own commands, which have imported it before, are left as they are. What is hooked
into them is in `maelm_fairseq.training` and `maelm_fairseq.optimizer`.
"""

import contextlib
import logging
import sys
import warnings

from .base.errors import InstallationError


@contextlib.contextmanager
def quiet_imports():
    """Imports within the block leave logging and warning filters as they were."""
    root = logging.getLogger()
    level, handlers = root.level, root.handlers[:]
    disabled = root.manager.disable
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logging.disable(logging.WARNING)
        try:
            yield
        finally:
            logging.disable(disabled)
            root.setLevel(level)
            root.handlers[:] = handlers


try:
    with quiet_imports():
        from fairseq import checkpoint_utils, criterions, models, options, tasks, utils
        from fairseq.criterions import FairseqCriterion, register_criterion
        from fairseq.data import Dictionary, FairseqDataset, data_utils, indexed_dataset
        from fairseq.data.iterators import CountingIterator, EpochBatchIterator
        from fairseq.data.token_block_utils_fast import _get_slice_indices_fast
        from fairseq.dataclass import ChoiceEnum, FairseqDataclass
        from fairseq.dataclass.configs import FairseqConfig
        from fairseq.dataclass.utils import convert_namespace_to_omegaconf, overwrite_args_by_name
        from fairseq.distributed import utils as distributed_utils
        from fairseq.file_io import PathManager
        from fairseq.logging import metrics, progress_bar
        from fairseq.logging.meters import MetersDict
        from fairseq.models import MODEL_DATACLASS_REGISTRY, BaseFairseqModel, register_model
        from fairseq.models.roberta.model import RobertaClassificationHead
        from fairseq.modules.transformer_sentence_encoder import init_bert_params
        from fairseq.optim import (
            OPTIMIZER_DATACLASS_REGISTRY,
            FairseqOptimizer,
            register_optimizer,
        )
        from fairseq.optim.adam import FairseqAdam
        from fairseq.optim.fp16_optimizer import FP16Optimizer
        from fairseq.optim.lr_scheduler import LR_SCHEDULER_DATACLASS_REGISTRY
        from fairseq.tasks import FairseqTask, register_task
        from fairseq.trainer import Trainer
except Exception as error:  # a mutable default, a missing module, a broken extension: types differ
    major, minor = sys.version_info[:2]
    lines = str(error).splitlines() or [""]
    reason = f"{type(error).__name__}: {lines[0]}"
    works = "fairseq==0.12.2"
    if sys.version_info >= (3, 11):
        works = "ve-fairseq, the same code for newer Pythons"
    raise InstallationError(
        f"fairseq does not work on this Python {major}.{minor} ({reason}): "
        "run `make install`, or `pip install -c constraints.txt .` in a new virtual environment, "
        f"which installs {works}"
    ) from None
