"""The pretraining task: dictionary, blocks, masking, batches."""

import itertools
import logging
import os
from dataclasses import dataclass, field

from omegaconf import II, MISSING

from .base.errors import MissingFileError, UsageError
from .data.blocks import TokenBlocks
from .data.epochs import ResumableIterator
from .data.masked_items import MaskedBlockDataset, masking_of
from .engine import ChoiceEnum, FairseqTask, indexed_dataset, register_task, utils
from .masking import NO_POSITION, MaskedBatch, MaskSettings
from .precision import PrecisionConfig, check_precision
from .vocabulary import dictionary_path, load_dictionary

logger = logging.getLogger(__name__)


class TokenTask(FairseqTask):
    """A task with one dictionary that uses every sequence of its data.

    Args:
        cfg: a :class:`~maelm_fairseq.precision.PrecisionConfig`
        dictionary: fairseq's, with `<mask>`
    """

    def __init__(self, cfg, dictionary):
        super().__init__(cfg)
        self.dictionary = dictionary

    @property
    def source_dictionary(self):
        return self.dictionary

    @property
    def target_dictionary(self):
        return self.dictionary

    def filter_indices_by_size(self, indices, dataset, max_positions=None, ignore_invalid_inputs=False):
        """Refuses sequences that do not fit; fairseq would drop them."""
        longest = dataset.sizes.max()
        if max_positions is not None and longest > max_positions:
            raise UsageError(f"sequences of up to {longest} tokens, {max_positions} are allowed: raise --max-tokens")
        return indices

    def get_batch_iterator(
        self,
        dataset,
        max_tokens=None,
        max_sentences=None,
        max_positions=None,
        required_batch_size_multiple=1,
        epoch=1,
        grouped_shuffling=False,
        **kwargs,
    ):
        """As fairseq's, but a :class:`ResumableIterator`, and a new one each epoch.

        Args:
            kwargs: other arguments of fairseq's; those of caches have no effect
        """
        if grouped_shuffling:
            raise UsageError("--grouped-shuffling leaves out the last batches of every epoch: remove it")
        dataset.set_epoch(epoch)
        self.filter_indices_by_size(None, dataset, max_positions)
        batching = dict(
            max_tokens=max_tokens,
            max_sentences=max_sentences,
            required_batch_size_multiple=required_batch_size_multiple,
        )
        return ResumableIterator(dataset, batching, epoch=epoch, **kwargs)


@dataclass
class MaeLmTaskConfig(MaskSettings, PrecisionConfig):
    data: str = field(
        default=MISSING,
        metadata={"help": "folder of binarized data, or several separated by colons, which take turns epoch by epoch"},
    )
    sample_break_mode: ChoiceEnum(["none", "complete", "complete_doc", "eos"]) = field(
        default="complete_doc",
        metadata={
            "help": "where blocks end: none fills every block; complete ends them at line ends, complete_doc "
            "also at document ends (blank lines); eos makes each line a block"
        },
    )
    tokens_per_sample: int = field(default=512, metadata={"help": "maximum tokens of a block, including <s>"})
    encoder_mask_fade_updates: int = field(
        default=0,
        metadata={
            "help": "begin as an MLM: the share of the masked positions that the encoder sees as [MASK] falls linearly "
            "from 1 to --encoder-mask-fraction over the first so many updates, say a sixth of all; 0 for never"
        },
    )
    seed: int = II("common.seed")


@register_task("mae_lm", dataclass=MaeLmTaskConfig)
class MaeLmTask(TokenTask):
    """Masked language modelling with the masks left out of the encoder.

    Args:
        cfg: :class:`MaeLmTaskConfig`
        dictionary: fairseq's, with `<mask>`
    """

    def __init__(self, cfg, dictionary):
        super().__init__(cfg, dictionary)
        self.mask_settings = MaskSettings.of(cfg)
        self.masking = masking_of(self.mask_settings, dictionary, cfg.seed)

    needs_decoder = True  # the model builds its decoder for tasks that say so

    @classmethod
    def setup_task(cls, cfg, **kwargs):
        check(cfg)
        folders = utils.split_paths(cfg.data)
        for folder in folders:  # rather than when its turn comes, days later
            dictionary_path(folder)
        return cls(cfg, load_dictionary(folders[0]))

    def load_dataset(self, split, epoch=1, combine=False, **kwargs):
        """Loads a split from the folder whose turn it is; with `combine` also `train1`, `train2`, ..."""
        folders = utils.split_paths(self.cfg.data)
        folder = folders[(epoch - 1) % len(folders)]
        if folder != folders[0] and load_dictionary(folder) != self.dictionary:
            raise UsageError(f"{folder}/dict.txt differs from that of {folders[0]}: prepare all folders with the same")
        prefixes = [os.path.join(folder, split)]
        for k in itertools.count(1):
            more = f"{prefixes[0]}{k}"
            if not combine or not os.path.exists(indexed_dataset.index_file_path(more)):
                break
            prefixes.append(more)
        for path in [indexed_dataset.index_file_path(prefixes[0]), indexed_dataset.data_file_path(prefixes[0])]:
            if not os.path.exists(path):
                files = ", ".join(sorted(os.listdir(folder))) or "nothing"
                raise MissingFileError(
                    f"{path}: not found, expected the binarized split {split!r}; {folder} contains: {files}. "
                    "Prepare it with data-prep/prepare.sh or fairseq-preprocess"
                )
        # One token less, for <s>.
        break_mode = str(self.cfg.sample_break_mode)
        parts = [TokenBlocks(p, self.cfg.tokens_per_sample - 1, break_mode) for p in prefixes]
        for part in parts:
            logger.info(part)
        self.datasets[split] = MaskedBlockDataset(parts, self.masking, self.dictionary, self.cfg.seed)

    def max_positions(self):
        return self.cfg.tokens_per_sample

    def train_step(self, sample, model, criterion, optimizer, update_num, ignore_grad=False):
        """fairseq's, on a batch in which masks fade; those of validation are as at the end."""
        return super().train_step(self.faded(sample, update_num), model, criterion, optimizer, update_num, ignore_grad)

    def faded(self, sample, update_num):
        """A batch as the encoder sees it at an update; here, because loader workers do not know its number."""
        share = 1 - update_num / self.cfg.encoder_mask_fade_updates if self.cfg.encoder_mask_fade_updates else 0
        if share <= 0:
            return sample
        inputs = MaskedBatch(**sample["net_input"])
        inputs = inputs.reveal(share, self.masking.mask_token, self.dictionary.pad())
        return {**sample, "net_input": inputs._asdict(), "nvisible": inputs.positions.ne(NO_POSITION).sum()}


def check(cfg):
    """Refuses options that are out of range or contradict each other."""
    MaskSettings.of(cfg)
    if cfg.tokens_per_sample < 2:
        raise UsageError(f"--tokens-per-sample {cfg.tokens_per_sample} must be at least 2: <s> and a token")
    if cfg.encoder_mask_fade_updates < 0:
        raise UsageError(f"--encoder-mask-fade-updates {cfg.encoder_mask_fade_updates} must be at least 0")
    check_precision(cfg)
