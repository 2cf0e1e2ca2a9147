"""The pretraining task: dictionary, blocks, masking, batches."""

import itertools
import logging
import os
from contextlib import nullcontext
from dataclasses import dataclass, field

import numpy as np
import torch
from fairseq import utils
from fairseq.data import Dictionary
from fairseq.data.indexed_dataset import data_file_path, index_file_path
from fairseq.dataclass import ChoiceEnum, FairseqDataclass
from fairseq.tasks import FairseqTask, register_task
from omegaconf import II, MISSING

from .data import MaskedBlockDataset, TokenBlocks
from .errors import MissingFileError, UsageError
from .masking import Masking

logger = logging.getLogger(__name__)

WORD_START = "\u2581"  # SentencePiece's


@dataclass
class PrecisionConfig(FairseqDataclass):
    bf16_autocast: bool = field(
        default=False, metadata={"help": "bfloat16 where it is safe, by torch.autocast, on CPU and GPU"}
    )
    fp16: bool = II("common.fp16")
    bf16: bool = II("common.bf16")
    amp: bool = II("common.amp")


@dataclass
class MaeLmTaskConfig(PrecisionConfig):
    data: str = field(
        default=MISSING,
        metadata={"help": "folder of binarized data; several, with colons between, are used an epoch each in turn"},
    )
    sample_break_mode: ChoiceEnum(["none", "complete", "complete_doc", "eos"]) = field(
        default="complete_doc",
        metadata={
            "help": "how blocks are cut: none fills each; complete ends them at line ends; complete_doc "
            "also at document ends (blank lines); eos makes one of each line"
        },
    )
    tokens_per_sample: int = field(default=512, metadata={"help": "tokens of a block at most, <s> counted"})
    mask_prob: float = field(default=0.15, metadata={"help": "share of positions that are predicted"})
    leave_unmasked_prob: float = field(
        default=0.0, metadata={"help": "share of the predicted positions that the encoder sees as they are"}
    )
    random_token_prob: float = field(
        default=0.0, metadata={"help": "share of the predicted positions that the encoder sees as a random token"}
    )
    encoder_mask_fraction: float = field(
        default=0.0,
        metadata={"help": "share of the masked positions that the encoder sees as [MASK]; 1 as in an MLM"},
    )
    mask_whole_words: bool = field(
        default=False, metadata={"help": "select whole words (of a SentencePiece vocabulary)"}
    )
    effective_rank_tokens: int = field(
        default=0,
        metadata={
            "help": "tokens of the validation set on which each validation measures the effective rank of the "
            "encoder's last layer; costs two passes of the encoder over them; 0 for none"
        },
    )
    seed: int = II("common.seed")


@register_task("mae_lm", dataclass=MaeLmTaskConfig)
class MaeLmTask(FairseqTask):
    """Masked language modelling with the masks left out of the encoder.

    Args:
        cfg: :class:`MaeLmTaskConfig`
        dictionary: fairseq's, with `<mask>`
    """

    def __init__(self, cfg, dictionary):
        super().__init__(cfg)
        self.dictionary = dictionary
        self.masking = Masking(
            cfg.mask_prob,
            cfg.leave_unmasked_prob,
            cfg.random_token_prob,
            cfg.encoder_mask_fraction,
            mask_token=dictionary.index("<mask>"),
            random_tokens=(dictionary.nspecial, len(dictionary) - 1),
            word_starts=word_starts(dictionary) if cfg.mask_whole_words else None,
            seed=cfg.seed,
        )

    @classmethod
    def setup_task(cls, cfg, **kwargs):
        check(cfg)
        return cls(cfg, load_dictionary(utils.split_paths(cfg.data)[0]))

    def load_dataset(self, split, epoch=1, combine=False, **kwargs):
        """Loads a split: of the folder whose turn it is, and with `combine` also `train1`, `train2`, ..."""
        folders = utils.split_paths(self.cfg.data)
        folder = folders[(epoch - 1) % len(folders)]
        if folder != folders[0] and load_dictionary(folder) != self.dictionary:
            raise UsageError(f"{folder}/dict.txt is not that of {folders[0]}: prepare all folders with one dict.txt")
        prefixes = [os.path.join(folder, split)]
        for k in itertools.count(1):
            more = f"{prefixes[0]}{k}"
            if not combine or not os.path.exists(index_file_path(more)):
                break
            prefixes.append(more)
        for path in [index_file_path(prefixes[0]), data_file_path(prefixes[0])]:
            if not os.path.exists(path):
                there = ", ".join(sorted(os.listdir(folder))) or "nothing"
                raise MissingFileError(
                    f"{path}: not found, expected the binarized split {split!r}; {folder} has: {there}. "
                    "Prepare it with data-prep/prepare.sh or fairseq-preprocess"
                )
        # One less for <s>.
        break_mode = str(self.cfg.sample_break_mode)
        parts = [TokenBlocks(p, self.cfg.tokens_per_sample - 1, break_mode) for p in prefixes]
        for part in parts:
            logger.info(part)
        self.datasets[split] = MaskedBlockDataset(parts, self.masking, self.dictionary, self.cfg.seed)

    def get_batch_iterator(self, *args, **kwargs):
        """fairseq's, except that loader workers never outlive an epoch: they would repeat its masks."""
        iterator = super().get_batch_iterator(*args, **kwargs)
        iterator.reuse_dataloader = False
        return iterator

    def post_validate(self, model, stats, agg):
        """Adds the effective ranks of the last layer to what a validation logs."""
        if self.cfg.effective_rank_tokens:
            from .effective_rank import last_layer_ranks  # it builds on this module

            dataset = next(data for split, data in self.datasets.items() if not split.startswith("train"))
            stats.update(last_layer_ranks(model, dataset, self.cfg.effective_rank_tokens))

    def filter_indices_by_size(self, indices, dataset, max_positions=None, ignore_invalid_inputs=False):
        """Refuses blocks that do not fit, where fairseq would leave them out."""
        longest = dataset.sizes.max()
        if max_positions is not None and longest > max_positions:
            raise UsageError(
                f"blocks of up to {longest} tokens, but only {max_positions} are allowed: --max-tokens must be "
                f"at least --tokens-per-sample ({self.cfg.tokens_per_sample})"
            )
        return indices

    def max_positions(self):
        return self.cfg.tokens_per_sample

    @property
    def source_dictionary(self):
        return self.dictionary

    @property
    def target_dictionary(self):
        return self.dictionary


def check(cfg):
    """Refuses options that are out of range or contradict each other."""

    def refuse(option, expected):
        value = getattr(cfg, option[2:].replace("-", "_"))
        raise UsageError(f"{option} {value} must be {expected}")

    if not 0 < cfg.mask_prob < 1:
        refuse("--mask-prob", "over 0 and under 1")
    for option in ["--leave-unmasked-prob", "--random-token-prob", "--encoder-mask-fraction"]:
        if not 0 <= getattr(cfg, option[2:].replace("-", "_")) <= 1:
            refuse(option, "from 0 to 1")
    if cfg.leave_unmasked_prob + cfg.random_token_prob > 1:
        raise UsageError(
            f"--leave-unmasked-prob {cfg.leave_unmasked_prob} and --random-token-prob {cfg.random_token_prob} "
            "add up to more than 1: they are shares of the same positions"
        )
    if cfg.tokens_per_sample < 2:
        refuse("--tokens-per-sample", "at least 2: <s> and a token")
    if cfg.effective_rank_tokens < 0:
        refuse("--effective-rank-tokens", "a number of tokens, or 0")
    check_precision(cfg)


def check_precision(cfg):
    """Refuses options of :class:`PrecisionConfig` that contradict each other."""
    if cfg.bf16:
        raise UsageError("fairseq's --bf16 is for TPUs: use --bf16-autocast, on CPU and GPU")
    if cfg.bf16_autocast and (cfg.fp16 or cfg.amp):
        raise UsageError(f"--bf16-autocast contradicts {'--fp16' if cfg.fp16 else '--amp'}: choose one")


def autocast(cfg, device):
    """The context for the model and its loss that a :class:`PrecisionConfig` asks for.

    For criterions, not for a task's train_step: fairseq's own switches autocast off (or to --amp) around them.
    """
    return torch.autocast(device.type, torch.bfloat16) if cfg.bf16_autocast else nullcontext()


def load_dictionary(folder):
    """Reads `dict.txt` of a folder of binarized data, and adds `<mask>`.

    Raises:
        FileNotFoundError: there is no such folder, or no dict.txt in it
    """
    path = os.path.join(folder, "dict.txt")
    if not os.path.exists(path):
        there = "an empty folder, or one without dict.txt" if os.path.isdir(folder) else "no such folder"
        raise MissingFileError(
            f"{path}: not found ({there}); expected data as data-prep/prepare.sh or fairseq-preprocess write it"
        )
    dictionary = Dictionary.load(path)
    dictionary.add_symbol("<mask>")
    return dictionary


def word_starts(dictionary):
    """Which symbols begin a word: bool (N,). Special symbols are words of their own."""
    starts = [
        i < dictionary.nspecial or symbol.startswith(WORD_START) or symbol == "<mask>"
        for i, symbol in enumerate(dictionary.symbols)
    ]
    if not any(symbol.startswith(WORD_START) for symbol in dictionary.symbols):
        raise UsageError(
            f"--mask-whole-words needs a SentencePiece vocabulary, but no symbol of dict.txt begins with {WORD_START!r}"
        )
    return np.array(starts)
