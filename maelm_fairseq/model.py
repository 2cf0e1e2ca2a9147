"""The model: an encoder that reads visible tokens only, a decoder that puts the masks back.

Letters in shapes: B sequences, T tokens of a sequence, V visible to the encoder, K predicted, C width, N vocabulary.
"""

import hashlib
import logging
from dataclasses import dataclass, field, make_dataclass

import torch
from fairseq.dataclass import FairseqDataclass
from fairseq.models import BaseFairseqModel, register_model
from fairseq.models.roberta.model import RobertaClassificationHead
from fairseq.modules.transformer_sentence_encoder import init_bert_params
from torch import nn

from .data import NO_POSITION
from .errors import UsageError
from .layers import LMHead, RelativePositionBias, Transformer
from .task import MaeLmTask

logger = logging.getLogger(__name__)


@dataclass
class MaeLmConfig(FairseqDataclass):
    encoder_layers: int = field(default=12, metadata={"help": "layers of the encoder"})
    encoder_embed_dim: int = field(default=768, metadata={"help": "width of encoder and decoder"})
    encoder_ffn_embed_dim: int = field(default=3072, metadata={"help": "width of the feed-forward layers"})
    encoder_attention_heads: int = field(default=12, metadata={"help": "attention heads of a layer"})
    decoder_layers: int = field(
        default=4,
        metadata={"help": "layers of the decoder; 0 for an MLM, with --encoder-mask-fraction 1"},
    )
    dropout: float = field(default=0.1, metadata={"help": "dropout of the encoder"})
    attention_dropout: float = field(default=0.1, metadata={"help": "dropout of its attention weights"})
    decoder_dropout: float = field(default=0.0, metadata={"help": "both dropouts of the decoder"})
    pooler_dropout: float = field(default=0.1, metadata={"help": "dropout of classification heads"})
    max_positions: int = field(default=512, metadata={"help": "positions that are learned"})
    relative_position_num_buckets: int = field(
        default=32, metadata={"help": "buckets of the encoder's relative position bias, even; 0 for no bias"}
    )
    relative_position_max_distance: int = field(
        default=128, metadata={"help": "distances from this one on share a bucket"}
    )
    relative_position_local_init: bool = field(
        default=False,
        metadata={
            "help": "begin with half of the heads looking at neighbours, left and right in turn, instead of with "
            "BERT's N(0, 0.02) for all: small models on little text learn several times sooner"
        },
    )
    decoder_relative_bias: bool = field(
        default=False, metadata={"help": "give the decoder a relative position bias of its own"}
    )


ARCHITECTURES = {
    "mae_lm_tiny": dict(
        encoder_layers=2,
        encoder_embed_dim=128,
        encoder_ffn_embed_dim=512,
        encoder_attention_heads=2,
        decoder_layers=1,
    ),
    "mae_lm_base": dict(),
    "mae_lm_large": dict(
        encoder_layers=24,
        encoder_embed_dim=1024,
        encoder_ffn_embed_dim=4096,
        encoder_attention_heads=16,
        relative_position_num_buckets=128,
        relative_position_max_distance=256,
    ),
}


@register_model("mae_lm", dataclass=MaeLmConfig)
class MaeLmModel(BaseFairseqModel):
    """MAE-LM (Meng et al., ICLR 2024).

    Args:
        cfg: :class:`MaeLmConfig`
        dictionary: fairseq's, with `<mask>`
        pretraining: without it there is neither decoder nor language-model head
    """

    def __init__(self, cfg, dictionary, pretraining: bool):
        super().__init__()
        self.cfg = self.args = cfg  # sentence_prediction of fairseq 0.12.2 asks for `args`
        self.pad = dictionary.pad()
        self.mask = dictionary.index("<mask>")
        width, heads = cfg.encoder_embed_dim, cfg.encoder_attention_heads
        sizes = (width, cfg.encoder_ffn_embed_dim, heads)
        num_buckets, max_distance = cfg.relative_position_num_buckets, cfg.relative_position_max_distance

        self.embed_tokens = nn.Embedding(len(dictionary), width, self.pad)
        self.encoder = Transformer(
            cfg.encoder_layers, *sizes, cfg.dropout, cfg.attention_dropout, cfg.max_positions, num_buckets, max_distance
        )
        self.decoder = self.lm_head = None
        if pretraining:
            if cfg.decoder_layers:
                dropout = cfg.decoder_dropout
                num_buckets = num_buckets if cfg.decoder_relative_bias else 0
                self.decoder = Transformer(
                    cfg.decoder_layers, *sizes, dropout, dropout, cfg.max_positions, num_buckets, max_distance
                )
            self.lm_head = LMHead(width, len(dictionary))
        self.classification_heads = nn.ModuleDict()
        self.apply(init_bert_params)
        for module in self.modules():
            if isinstance(module, RelativePositionBias) and cfg.relative_position_local_init:
                module.look_at_neighbours()
        self.register_buffer("dictionary_fingerprint", fingerprint(dictionary))

    @classmethod
    def build_model(cls, cfg, task):
        """Builds the model for a task: for `mae_lm` to pretrain, for any other the encoder alone."""
        pretraining = isinstance(task, MaeLmTask)
        check(cfg)
        if pretraining:
            if task.max_positions() > cfg.max_positions:
                raise UsageError(
                    f"--tokens-per-sample {task.max_positions()} is more than --max-positions "
                    f"{cfg.max_positions}: lower the one or raise the other"
                )
            if cfg.decoder_layers == 0 and task.cfg.encoder_mask_fraction < 1:
                raise UsageError(
                    "--decoder-layers 0 needs --encoder-mask-fraction 1 (it is "
                    f"{task.cfg.encoder_mask_fraction}): without a decoder, what the encoder does not see "
                    "cannot be predicted"
                )
        return cls(cfg, task.source_dictionary, pretraining)

    def forward(
        self,
        src_tokens,
        positions=None,
        masked_positions=None,
        num_predicted=None,
        padded=True,
        features_only=False,
        classification_head_name=None,
        **unused,
    ):
        """Predicts the masked tokens; or, as fairseq's fine-tuning tasks call it, gives features.

        Args:
            src_tokens: (B, V) what the encoder sees
            positions: (B, V) its original positions, -1 for padding; None for 0, 1, 2, ...
            masked_positions: (B, M) original positions that are predicted and not seen
            num_predicted: K; the predicted are the last K - M of `src_tokens`, then the left out
            padded: False where the batch is known to have no padding
            features_only: give the encoder's output instead
            classification_head_name: give this head's output instead
        Returns:
            logits (B, K, N); for features and heads, as fairseq expects, a pair (tensor, None)
        """
        encoded = self.forward_encoder(src_tokens, positions, padded)
        if classification_head_name is not None:
            return self.classification_heads[classification_head_name](encoded), None
        if features_only:
            return encoded, None
        decoded = self.forward_decoder(encoded, positions, masked_positions, num_predicted, padded)
        return self.lm_head(decoded, self.embed_tokens.weight)

    def forward_encoder(self, tokens, positions=None, padded=True, hidden=None):
        """(B, V) tokens at their original positions (B, V) -> (B, V, C); None for 0, 1, 2, ...

        A list given as `hidden` receives what layers 0 (the embeddings) to L gave, (B, V, C) each.
        """
        if positions is None:
            positions = torch.arange(tokens.size(1), device=tokens.device)
            positions = positions.where(tokens.ne(self.pad), positions.new_tensor(NO_POSITION))
        return self.encoder(self.embed_tokens(tokens), positions, padded, hidden=hidden)

    def forward_decoder(self, encoded, positions, masked_positions, num_predicted, padded=True):
        """Puts [MASK] back and reads off the predicted positions.

        The order of rows is free, since every row carries its position: visible rows first, left-out rows
        behind them, so that the predicted ones are the last K and the last layer computes only those.

        Args:
            encoded: (B, V, C); positions: (B, V); masked_positions: (B, M); num_predicted: K
        Returns:
            (B, K, C)
        """
        if self.decoder is None:
            return encoded[:, encoded.size(1) - num_predicted :]
        masks = self.embed_tokens.weight[self.mask].expand(*masked_positions.shape, -1)
        x = torch.cat([encoded, masks.to(encoded.dtype)], dim=1)
        positions = torch.cat([positions, masked_positions], dim=1)
        return self.decoder(x, positions, padded, outputs=num_predicted)

    def max_positions(self):
        return self.cfg.max_positions

    def register_classification_head(self, name, num_classes=None, inner_dim=None, **unused):
        """Adds a head on `<s>`: dropout, linear, tanh, dropout, linear."""
        width = self.cfg.encoder_embed_dim
        head = RobertaClassificationHead(width, inner_dim or width, num_classes, "tanh", self.cfg.pooler_dropout)
        self.classification_heads[name] = head.apply(init_bert_params)

    def register_span_head(self, name):
        """Adds a head on every token: start and end logits, (B, T, 2)."""
        self.classification_heads[name] = nn.Linear(self.cfg.encoder_embed_dim, 2).apply(init_bert_params)

    def upgrade_state_dict(self, state_dict):
        """Fits a checkpoint to this model, in place: an encoder needs no decoder, and brings its own heads."""
        own = self.state_dict()
        foreign = [k for k in state_dict if k.startswith("classification_heads.") and k not in own]
        decoder = [k for k in state_dict if k.startswith(("decoder.", "lm_head.")) and self.lm_head is None]
        for key in foreign + decoder:
            del state_dict[key]
        if decoder:
            logger.info("the checkpoint's decoder is left behind: only its encoder is used")
        for key in own:
            if key.startswith("classification_heads."):
                state_dict.setdefault(key, own[key])
        compare(state_dict, own)


for _name, _sizes in ARCHITECTURES.items():
    # A model with a dataclass of its own, since fairseq-hydra-train ignores architectures registered otherwise.
    _base = MaeLmConfig.__dataclass_fields__
    _fields = [(k, _base[k].type, field(default=v, metadata=_base[k].metadata)) for k, v in _sizes.items()]
    _config = make_dataclass(_name, _fields, bases=(MaeLmConfig,))
    register_model(_name, dataclass=_config)(type(_name, (MaeLmModel,), {}))


def check(cfg):
    """Refuses sizes that contradict each other."""
    width, heads = cfg.encoder_embed_dim, cfg.encoder_attention_heads
    num_buckets, max_distance = cfg.relative_position_num_buckets, cfg.relative_position_max_distance
    if cfg.encoder_layers < 1 or cfg.decoder_layers < 0:
        raise UsageError(
            f"--encoder-layers {cfg.encoder_layers} must be at least 1, "
            f"--decoder-layers {cfg.decoder_layers} at least 0"
        )
    if width % heads:
        raise UsageError(f"--encoder-attention-heads {heads} must divide --encoder-embed-dim {width}")
    if num_buckets % 2 or num_buckets < 0 or num_buckets == 2:
        raise UsageError(
            f"--relative-position-num-buckets {num_buckets} must be even and at least 4 (half for each direction), or 0 for no bias"
        )
    if num_buckets and max_distance - 1 <= num_buckets // 4:
        raise UsageError(
            f"--relative-position-max-distance {max_distance} must be over {num_buckets // 4 + 1}: with "
            f"--relative-position-num-buckets {num_buckets} distances below {num_buckets // 4} have a bucket each"
        )
    for option in ["dropout", "attention_dropout", "decoder_dropout", "pooler_dropout"]:
        if not 0 <= getattr(cfg, option) < 1:
            raise UsageError(
                f"--{option.replace('_', '-')} {getattr(cfg, option)} must be at least 0 and less than 1: it is the "
                "share that is dropped"
            )
    for option in ["decoder_relative_bias", "relative_position_local_init"]:
        if getattr(cfg, option) and not num_buckets:
            raise UsageError(f"--{option.replace('_', '-')} needs --relative-position-num-buckets over 0")


def fingerprint(dictionary):
    """A number that tells vocabularies apart: int64 scalar."""
    digest = hashlib.sha256("\n".join(dictionary.symbols).encode()).digest()
    return torch.tensor(int.from_bytes(digest[:8], "little", signed=True))


def compare(checkpoint, model):
    """Refuses a checkpoint of other sizes or of another vocabulary, naming each option that differs.

    Args:
        checkpoint, model: state dicts
    """

    def sizes(state):
        def shape(key, dim=0):
            return state[key].size(dim) if key in state else 0

        def layers(part):
            return sum(k.startswith(part + ".layers.") and k.endswith(".ffn_norm.bias") for k in state)

        return {
            "vocabulary (dict.txt)": shape("embed_tokens.weight"),
            "--encoder-layers": layers("encoder"),
            "--encoder-embed-dim": shape("embed_tokens.weight", 1),
            "--encoder-ffn-embed-dim": shape("encoder.layers.0.ffn.0.weight"),
            "--encoder-attention-heads": shape("encoder.relative_bias.table.weight", 1),
            "--decoder-layers": layers("decoder"),
            "--max-positions": shape("encoder.embed_positions.weight") - 1,
            "--relative-position-num-buckets": shape("encoder.relative_bias.table.weight"),
            "--decoder-relative-bias": shape("decoder.relative_bias.table.weight") > 0,
        }

    theirs, ours = sizes(checkpoint), sizes(model)
    different = [f"{k} {theirs[k]} there, {ours[k]} here" for k in ours if theirs[k] != ours[k]]
    if different:
        raise UsageError("the checkpoint is of another size: " + "; ".join(different))
    if checkpoint["dictionary_fingerprint"] != model["dictionary_fingerprint"]:
        raise UsageError(
            "the checkpoint was trained with another dict.txt (of the same size): use the data, or the "
            "SentencePiece model and dict.txt, that it was trained with"
        )
