"""What the experiments pretrain, as options of fairseq-train: models, sizes and text."""

from dataclasses import dataclass, fields

from maelm_fairseq.config import option
from maelm_fairseq.masking import MaskSettings


def options_of(config):
    """The fields of a dataclass as options: [--mask-prob, 0.15, ...]; a true boolean as its flag alone."""
    options = []
    for each in fields(config):
        value = getattr(config, each.name)
        if not isinstance(value, bool):
            options += [option(each.name), value]
        elif value:
            options.append(option(each.name))
    return options


@dataclass(frozen=True)
class Model:
    """What distinguishes one pretrained model from another of the same size.

    Args:
        name: in the names of runs
        title: in tables and figures
        decoder_layers: 0 for none
        masks: what is predicted, and what the encoder sees of it
        relative_position_bias: of encoder and decoder, with heads that attend to neighbours at first
        shared: whether the decoder's layers are the encoder's last ones
    """

    name: str
    title: str
    decoder_layers: int
    masks: MaskSettings
    relative_position_bias: bool = True
    shared: bool = False

    def options(self):
        """The options of fairseq-train that make this model: list of strings and numbers."""
        options = ["--relative-position-num-buckets", 0]
        if self.relative_position_bias:
            options = [*["--decoder-relative-bias"] * (not self.shared), "--relative-position-local-init"]
        options += ["--share-decoder-layers"] * self.shared
        return ["--decoder-layers", self.decoder_layers, *options_of(self.masks), *options]


@dataclass(frozen=True)
class Size:
    """The size of the encoder."""

    encoder_layers: int
    encoder_embed_dim: int
    encoder_ffn_embed_dim: int
    encoder_attention_heads: int


@dataclass(frozen=True)
class Text:
    """How the text is cut into blocks and batches."""

    tokens_per_sample: int
    batch_size: int
    batch_size_valid: int = 64
    vocab_size: int = 8000  # where the program prepares the text itself


def training_options(model, size, text, lr, updates, save_updates, seed):
    """The options of fairseq-train for a run, except folders and devices.

    Args:
        model, size, text: :class:`Model`, :class:`Size`, :class:`Text`
        lr: the highest learning rate; it rises for 6% of the updates, then falls linearly to zero
        updates: total number of updates
        save_updates: number of updates between checkpoints, and between validations
        seed: of the weights, the order of the text and the masks
    Returns:
        list of strings
    """
    save_updates = min(save_updates, updates)
    options = [
        *["--task", "mae_lm", "--criterion", "mae_lm", "--arch", "mae_lm_tiny", *options_of(size)],
        *["--dropout", 0, "--attention-dropout", 0, "--max-positions", text.tokens_per_sample],
        *["--tokens-per-sample", text.tokens_per_sample, "--batch-size", text.batch_size],
        *["--batch-size-valid", text.batch_size_valid, "--num-workers", 0, "--bf16-autocast"],
        *["--optimizer", "torch_adamw", "--adam-betas", "(0.9, 0.999)", "--adam-eps", 1e-6],
        *["--weight-decay", 0.01, "--clip-norm", 2.0, "--lr-scheduler", "polynomial_decay"],
        *["--lr", lr, "--warmup-updates", max(1, int(0.06 * updates))],
        *["--total-num-update", updates, "--max-update", updates],
        *["--distributed-world-size", 1, "--log-format", "json", "--log-interval", max(1, min(50, save_updates))],
        *["--save-interval-updates", save_updates, "--no-epoch-checkpoints", *model.options(), "--seed", seed],
        *["--keep-interval-updates", 1],
    ]
    return list(map(str, options))
