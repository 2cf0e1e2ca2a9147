"""The pretraining task: dictionary, blocks, masking, batches."""

import itertools
import logging
import os
from dataclasses import dataclass, fields
from typing import Optional

import numpy as np
import torch
from omegaconf import II, MISSING

from .base.checkpoint_names import resumable_checkpoint_paths
from .base.errors import MissingFileError, UsageError
from .base.line_index import check_index
from .base.option_fields import as_dict, setting
from .base_task import MaeLmBaseTask, check_best_checkpoint_options
from .data.blocks import TokenBlocks
from .data.cooccurrence import compute_embeddings, count_neighbours
from .data.masked_items import MaskedBlockDataset
from .distributed import compute_in_first_process
from .fairseq_api import (
    ChoiceEnum,
    distributed_utils,
    indexed_dataset,
    metrics,
    register_task,
    utils,
)
from .masking import NO_POSITION, MaskedBatch, Masking, MaskSettings, rounding_offsets
from .precision import PrecisionConfig
from .vocabulary import checked_dictionary, load_dictionary

logger = logging.getLogger(__name__)

MAX_COUNTED_TOKENS = 20_000_000  # tokens of the training text that are counted
MAX_VALID_TOKENS = 1_000_000  # of the validation text
# Standard deviation of embeddings from co-occurrence: of 0.03, 0.06 and 0.1, this value gave the
# lowest loss.
EMBEDDING_STD = 0.06


@dataclass
class MaeLmTaskConfig(MaskSettings, PrecisionConfig):
    data: str = setting(
        MISSING,
        "folder of binarized data, or several separated by colons, which take turns by epoch",
    )
    sample_break_mode: ChoiceEnum(["none", "complete", "complete_doc", "eos"]) = setting(
        "complete_doc",
        "where blocks end: none fills every block; complete ends them at line ends, "
        "complete_doc also at document ends (blank lines); eos makes each line a block",
    )
    tokens_per_sample: int = setting(512, "maximum tokens of a block, including <s>", minimum=2)
    encoder_mask_fade_updates: int = setting(
        0,
        "begin as an MLM: the share of the masked positions that the encoder sees as [MASK] "
        "falls linearly from 1 to --encoder-mask-fraction over this many updates at first, "
        "say a sixth of all; 0 for never",
        minimum=0,
    )
    cooccurrence_embeddings: bool = setting(
        False,
        "begin with token embeddings from the co-occurrence of tokens in the training text, "
        "and an output bias from their frequencies, instead of random numbers and zeros",
    )
    compile_layers: bool = setting(
        False,
        "have PyTorch compile layers and head for the shapes of their input, "
        "which are few with --sample-break-mode none; "
        "what it gains has not been measured on a GPU",
    )
    seed: int = II("common.seed")
    train_subset: str = II("dataset.train_subset")
    save_dir: str = II("checkpoint.save_dir")
    checkpoint_suffix: str = II("checkpoint.checkpoint_suffix")
    finetune_from_model: Optional[str] = II("checkpoint.finetune_from_model")


@register_task("mae_lm", dataclass=MaeLmTaskConfig)
class MaeLmTask(MaeLmBaseTask):
    """Masked language modelling with the masks left out of the encoder.

    Its `cfg` is a `MaeLmTaskConfig`.
    """

    needs_lm_head = True  # the model builds its decoder for tasks that say so

    def __init__(self, cfg):
        check_compilation(cfg)
        super().__init__(cfg, shared_dictionary(utils.split_paths(cfg.data)))
        settings = {field.name: getattr(cfg, field.name) for field in fields(MaskSettings)}
        self.mask_settings = MaskSettings(**settings)
        self.masking = Masking(self.mask_settings, self.dictionary, cfg.seed)
        self.fade_updates = cfg.encoder_mask_fade_updates

    def build_model(self, cfg, from_checkpoint=False):
        """The model; in a new run, it may begin with what can be counted in the text."""
        model = super().build_model(cfg, from_checkpoint)
        if from_checkpoint:
            return model
        if self.cfg.cooccurrence_embeddings and not self.has_starting_weights():
            self.initialize_from_counts(model)
        if self.cfg.compile_layers:
            model.compile_layers()
        return model

    def has_starting_weights(self):
        """Whether a run resumes, or starts from the weights of another."""
        resumes = resumable_checkpoint_paths(self.cfg.save_dir, self.cfg.checkpoint_suffix)
        return bool(self.cfg.finetune_from_model or resumes)

    def initialize_from_counts(self, model):
        """Gives a model, in place, embeddings from co-occurrence and a bias from frequencies."""
        vocabulary_size, width = model.embed_tokens.weight.shape
        if width > vocabulary_size:
            raise UsageError(
                f"--cooccurrence-embeddings: --encoder-embed-dim {width} "
                f"must be at most {vocabulary_size}, the symbols of dict.txt"
            )
        # One process, because it takes memory, and because machines may differ in the last bits.
        vectors, log_frequencies = compute_in_first_process(
            lambda: self.count_text(vocabulary_size, width),
            [(vocabulary_size, width), (vocabulary_size,)],
        )
        filled = vectors.any(dim=1)
        with torch.no_grad():
            model.embed_tokens.weight[filled] = vectors[filled]
            model.lm_head.bias.copy_(log_frequencies)
        logger.info(
            f"{int(filled.sum()):,} of {vocabulary_size:,} embeddings "
            "start from co-occurrence in the training text"
        )

    def count_text(self, vocabulary_size, width):
        """What can be counted in the training text: `[embeddings, log_frequencies]`.

        Returns: float32 (N, C), zeros for symbols that co-occurrence says nothing about, and (N,)
        """
        logger.info("counting co-occurrence in the training text, which takes seconds to a minute")
        text = self.read_split(self.cfg.train_subset)
        pairs, counts = count_neighbours(
            text.evenly_spaced_blocks(MAX_COUNTED_TOKENS), vocabulary_size
        )
        vectors = compute_embeddings(pairs, counts, vocabulary_size, width, EMBEDDING_STD)
        frequencies = torch.from_numpy(text.token_counts(MAX_COUNTED_TOKENS) + 1).double()
        return [vectors, (frequencies / frequencies.sum()).log().float()]

    def load_dataset(self, split, epoch=1, combine=False, **kwargs):
        """Loads a split from the folder whose turn it is.

        With `combine` it also loads `train1`, `train2`, ...
        """
        self.datasets[split] = self.read_split(split, epoch, combine)
        for part in self.datasets[split].parts:
            logger.info(part)

    def read_split(self, split, epoch=1, combine=False):
        """A `masked_items.MaskedBlockDataset`; see `load_dataset`."""
        folders = utils.split_paths(self.cfg.data)
        first = prefix_of(folders[(epoch - 1) % len(folders)], split)
        prefixes = [first]
        if combine:
            further = (f"{first}{number}" for number in itertools.count(1))
            prefixes += itertools.takewhile(has_index, further)
        length = self.cfg.tokens_per_sample - 1  # one token less, for <s>
        break_mode = str(self.cfg.sample_break_mode)
        parts = [TokenBlocks(prefix, length, break_mode) for prefix in prefixes]
        return MaskedBlockDataset(parts, self.masking, self.dictionary, self.cfg.seed)

    def check_before_training(self, cfg, criterion):
        """Refuses, before the first update, settings that would fail later.

        It also logs the loss that token frequencies alone would give. `cfg` is fairseq's whole
        configuration.
        """
        check_criterion_logs_metric(cfg, criterion)
        self.warn_of_unfinished_schedules(cfg)
        for folder in utils.split_paths(self.cfg.data):  # some have their turn only days later
            check_index(prefix_of(folder, cfg.dataset.train_subset))
        valid = self.datasets.get(cfg.dataset.valid_subset.split(",")[0])
        if valid is not None and distributed_utils.is_master(cfg.distributed_training):
            self.log_unigram_loss(self.datasets[cfg.dataset.train_subset], valid)

    def warn_of_unfinished_schedules(self, cfg):
        """Warns of schedules that last longer than training."""
        max_update = cfg.optimization.max_update
        schedule = as_dict(cfg.lr_scheduler)
        fading = self.cfg.encoder_mask_fade_updates
        warmup = schedule.get("warmup_updates", 0)
        decay = schedule.get("total_num_update", 0)
        for name, end, consequence in [
            ("--encoder-mask-fade-updates", fading, "the encoder still sees some masks"),
            ("--warmup-updates", warmup, "the learning rate never reaches --lr"),
            ("--total-num-update", decay, "the learning rate has not come down by then"),
        ]:
            if 0 < max_update < end:
                logger.warning(
                    f"--max-update {max_update:,} is less than {name} {end:,}: {consequence}"
                )

    def log_unigram_loss(self, train, valid):
        """Logs the loss of validation data under the token frequencies of training data.

        Of long texts, a part is read.
        """
        bits = unigram_bits(
            train.token_counts(MAX_COUNTED_TOKENS), valid.token_counts(MAX_VALID_TOKENS)
        )
        self.state.merge_state_dict({"unigram_bits": bits})  # model cards show it
        logger.info(
            f"unigram_bits {bits:.3f}: "
            "the loss, per token, of a model that knows only token frequencies"
        )

    def max_positions(self):
        return self.cfg.tokens_per_sample

    def train_step(self, sample, model, criterion, optimizer, update_num, ignore_grad=False):
        """Forward and backward pass of a batch in which masks fade.

        In validation, masks do not fade: the encoder sees as many as at the end. fairseq's method
        also visits each module, to put it into train mode, which its Trainer has done already, and
        to tell it the update.
        """
        loss, sample_size, logged = criterion(model, self.with_visible_masks(sample, update_num))
        if ignore_grad:
            loss *= 0
        optimizer.backward(loss)
        return loss, sample_size, logged

    def with_visible_masks(self, sample, update_num):
        """A batch with the masks that the encoder still sees at an update, while masks fade.

        This is not done where batches are made, because loader workers do not know the number of
        the update.
        """
        if update_num >= self.fade_updates:
            return sample
        share = 1 - update_num / self.fade_updates
        offset, _ = rounding_offsets(self.cfg.seed, epoch_or_update=update_num, num_candidates=0)
        mask_id, pad = self.masking.mask_id, self.dictionary.pad()
        inputs, target = MaskedBatch(**sample["net_input"]).with_visible_masks(
            sample["target"], share, offset, mask_id, pad
        )
        nvisible = inputs.positions.ne(NO_POSITION).sum()
        return {**sample, "net_input": inputs._asdict(), "target": target, "nvisible": nvisible}


def unigram_bits(train_counts, valid_counts):
    """The cross-entropy, in bits per token, of a text under the token frequencies of another.

    Each token is counted once more than it occurs in training.

    Args:
        train_counts, valid_counts: (vocabulary,), how often each token occurs
    """
    smoothed_counts = train_counts + 1
    token_bits = np.log2(smoothed_counts.sum() / smoothed_counts)
    return float(valid_counts @ token_bits / valid_counts.sum())


def shared_dictionary(folders):
    """The dictionary of folders of binarized data; refuses folders that differ in it.

    They are all read now, although the turn of some may come only days later.
    """
    first, *others = folders
    dictionary = checked_dictionary(first)
    for folder in others:
        if load_dictionary(folder) != dictionary:
            raise UsageError(
                f"{folder}/dict.txt differs from that of {first}: prepare all folders with the same"
            )
    return dictionary


def check_compilation(cfg):
    """Refuses inputs of ever new shapes, for which layers would be compiled again and again."""
    if not cfg.compile_layers:
        return
    if str(cfg.sample_break_mode) != "none":
        raise UsageError(
            "--compile-layers needs --sample-break-mode none, whose blocks have one length; "
            f"it is {cfg.sample_break_mode}"
        )
    if cfg.encoder_mask_fade_updates:
        raise UsageError(
            "--compile-layers contradicts "
            f"--encoder-mask-fade-updates {cfg.encoder_mask_fade_updates}, "
            "by which the encoder's input grows shorter; make it 0"
        )


def check_criterion_logs_metric(cfg, criterion):
    """Refuses a --best-checkpoint-metric that validation does not log, and its wrong end."""
    with metrics.aggregate(new_root=True) as aggregator:
        try:
            criterion.reduce_metrics([])
            logged = aggregator.get_smoothed_values()
        except Exception:  # a criterion of one's own may need a batch
            logged = [cfg.checkpoint.best_checkpoint_metric]
    if not cfg.dataset.disable_validation:
        check_best_checkpoint_options(cfg.checkpoint, logged, ["accuracy"])


def has_index(prefix):
    """Whether there is an index of the binarized data of this name."""
    return os.path.exists(indexed_dataset.index_file_path(prefix))


def prefix_of(folder, split):
    """The path of a binarized split without `.bin` and `.idx`; refuses one that does not exist."""
    prefix = os.path.join(folder, split)
    for path in [indexed_dataset.index_file_path(prefix), indexed_dataset.data_file_path(prefix)]:
        if not os.path.exists(path):
            files = ", ".join(sorted(os.listdir(folder))) or "nothing"
            raise MissingFileError(
                f"{path}: not found, expected the binarized split {split!r}; "
                f"{folder} contains: {files}. "
                "Prepare it with data-prep/prepare.sh or fairseq-preprocess; "
                "of data in shards, give the folders shard0:shard1 and so on, "
                "the first of which has the validation data"
            )
    return prefix
