"""Question answering as in SQuAD: where in a text an answer starts and ends. Task, data and loss.

Letters in shapes: B windows, T tokens of the longest.
"""

import logging
import math
import os
from dataclasses import dataclass, field
from enum import Enum
from typing import Dict

import numpy as np
import torch
from omegaconf import II, MISSING
from torch.nn.utils.rnn import pad_sequence

from ...base.errors import UsageError
from ...base.files import read_json
from ...config import check_positions
from ...data.batches import WholeDataset
from ...engine import FairseqCriterion, FairseqDataclass, indexed_dataset, metrics, register_criterion, register_task
from ...precision import PrecisionConfig, autocast, check_precision
from ...task import TokenTask
from ...vocabulary import load_dictionary
from .text import EOS, WindowSizes

logger = logging.getLogger(__name__)

HEAD = "squad"
RECORD, FORMAT = "squad.json", 1  # data-prep/squad.py writes it last
AGAIN = "prepare the data again with data-prep/squad.py"


class Version(Enum):
    ALL_ANSWERABLE, SOME_IMPOSSIBLE = "1.1", "2.0"


@dataclass
class SquadRecord:
    """What data-prep/squad.py records of its data."""

    format: int
    version: Version
    options: WindowSizes
    counts: Dict[str, Dict[str, int]]


@dataclass
class SquadTaskConfig(PrecisionConfig):
    data: str = field(default=MISSING, metadata={"help": "folder that data-prep/squad.py wrote"})
    seed: int = II("common.seed")


@register_task("squad", dataclass=SquadTaskConfig)
class SquadTask(TokenTask):
    """Finds the first and the last token of the answer, or `<s>` if there is none.

    Args:
        cfg: :class:`SquadTaskConfig`
    """

    def __init__(self, cfg):
        check_precision(cfg)
        super().__init__(cfg, load_dictionary(cfg.data))
        self.sizes = load_record(cfg.data).options

    def build_model(self, cfg, *args, **kwargs):
        """The encoder with a head for start and end."""
        model = super().build_model(cfg, *args, **kwargs)
        longest, positions = self.sizes.max_tokens, model.max_positions()
        fix = f"prepare the data with data-prep/squad.py --max-tokens {positions} or less"
        check_positions(longest, positions, f"windows of up to {longest} tokens", fix)
        model.register_span_head(HEAD)
        return model

    def load_dataset(self, split, **kwargs):
        self.datasets[split] = SquadDataset(os.path.join(self.cfg.data, split), self.dictionary, self.cfg.seed)
        logger.info("%s/%s: %s windows", self.cfg.data, split, f"{len(self.datasets[split]):,}")

    def max_positions(self):
        return self.sizes.max_tokens


def load_record(folder):
    """Reads the record that data-prep/squad.py writes with its data: :class:`SquadRecord`.

    Raises:
        FileNotFoundError: there is no `squad.json`
        ValueError: it is damaged, or of another version of the program
    """
    path = os.path.join(folder, RECORD)
    record = read_json(path, SquadRecord, "the record of a finished run of data-prep/squad.py", AGAIN)
    if record.format != FORMAT:
        raise UsageError(f"{path}: its format is {record.format}, expected {FORMAT}; {AGAIN}")
    record.options.check()
    return record


class SquadDataset(WholeDataset):
    """Windows with the start and the end of their answers.

    Args:
        prefix: path of the data, without `.bin` and `.span.bin`
        dictionary: fairseq's, with `<mask>`
        seed: of the order of the windows
    """

    def __init__(self, prefix, dictionary, seed: int):
        self.tokens = indexed_dataset.MMapIndexedDataset(prefix)
        self.spans = indexed_dataset.MMapIndexedDataset(prefix + ".span")
        self.dictionary, self.seed = dictionary, seed
        self.sizes = self.tokens.sizes.astype(np.int64)

    def __getitem__(self, index):
        return index, self.tokens[index].numpy(), self.spans[index].numpy()

    def collater(self, samples):
        """Merges windows into a batch.

        Returns:
            dict: `net_input` with `src_tokens` (B, T), padded at the right; `target` (B, 2), start and end
        """
        if not samples:
            return {}
        indices, windows, spans = zip(*samples)
        return {
            "id": np.array(indices),
            "net_input": network_input(windows, self.dictionary.pad()),
            "target": torch.from_numpy(np.stack(spans).astype(np.int64)),
            "nsentences": len(windows),
            "ntokens": sum(map(len, windows)),
        }

    def ordered_indices(self):
        """Windows of similar length side by side, otherwise in an order drawn from the seed."""
        order = np.random.default_rng(self.seed).permutation(len(self))
        return order[np.argsort(self.sizes[order] // 32, kind="stable")]


def network_input(windows, pad):
    """The model's input for windows, arrays of tokens: `src_tokens` (B, T), and whether they are padded."""
    tokens = pad_sequence(list(map(torch.from_numpy, windows)), batch_first=True, padding_value=pad)
    return {"src_tokens": tokens, "padded": tokens.numel() > sum(map(len, windows))}


def span_log_probs(model, net_input):
    """Log-probabilities of start and end over `<s>` and the context, -inf elsewhere: float32 (B, T, 2)."""
    logits, _ = model(**net_input, features_only=True, classification_head_name=HEAD)
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    ends = net_input["src_tokens"].eq(EOS)
    allowed = ends.cumsum(1).eq(2) & ~ends
    allowed[:, 0] = True
    return logits.masked_fill(~allowed[:, :, None], float("-inf")).log_softmax(1)


@register_criterion("squad", dataclass=FairseqDataclass)
class SquadCriterion(FairseqCriterion):
    """The mean cross-entropy of start and end, summed over windows; the sample size is the number of windows."""

    def forward(self, model, sample, reduce=True):
        """Returns the loss in nats (a sum), the number of windows, and the values to log."""
        target = sample["target"]
        with autocast(self.task.cfg, target.device):
            log_probs = span_log_probs(model, sample["net_input"])
        loss = -log_probs.gather(1, target[:, None]).sum() / 2
        logged = {
            "loss": loss.detach(),
            "correct": log_probs.detach().argmax(1).eq(target).all(1).sum(),
            "sample_size": len(target),
            "ntokens": sample["ntokens"],
            "nsentences": len(target),
        }
        return loss, len(target), logged

    @staticmethod
    def reduce_metrics(logging_outputs):
        """Logs loss (in bits) and accuracy: the percentage of windows whose start and end are both right."""

        def total(key):
            return sum(log.get(key, 0) for log in logging_outputs)

        windows = total("sample_size")
        metrics.log_scalar("loss", total("loss") / max(windows, 1) / math.log(2), windows, round=3)
        metrics.log_scalar("accuracy", 100 * total("correct") / max(windows, 1), windows, round=2)

    @staticmethod
    def logging_outputs_can_be_summed():
        return True
