"""The model: an encoder that reads visible tokens only, a decoder that puts the masks back.

Letters in shapes: B sequences, T tokens of a sequence, V visible to the encoder, M masked and not
visible to it, K predicted, C width, N vocabulary.
"""

import logging
import zlib
from dataclasses import field, make_dataclass

import torch
from torch import nn

from .base.errors import UsageError
from .config import ARCHITECTURES, MaeLmConfig, check_model_options, check_positions
from .fairseq_api import BaseFairseqModel, init_bert_params, register_model
from .heads import HEAD_OF_POOLING, LMHead
from .layers import Masks, RelativePositionBias, Transformer, TransformerLayer
from .masking import NO_POSITION
from .state_dicts import reset_mismatched_parts
from .vocabulary import FINGERPRINT, MASK, fingerprint

logger = logging.getLogger(__name__)
MAX_COMPILED_SHAPES = 64  # of the input of a layer; PyTorch's own limit is 8


@register_model("mae_lm", dataclass=MaeLmConfig)
class MaeLmModel(BaseFairseqModel):
    """MAE-LM (Meng et al., ICLR 2024, section 3 and Figure 2).

    With the same weights and masks, loss and gradients agree with the authors' release,
    github.com/yumeng5/MAE-LM. The dictionary has `<mask>`. Decoder and language-model head are
    built only if `needs_lm_head`, which pretraining does.
    """

    def __init__(self, cfg, dictionary, needs_lm_head: bool):
        super().__init__()
        self.cfg = cfg
        self.args = cfg  # sentence_prediction of fairseq 0.12.2 asks for it
        self.num_shared_layers = cfg.decoder_layers if cfg.share_decoder_layers else 0
        self.pad = dictionary.pad()
        self.mask_id = dictionary.index(MASK)
        N, C = len(dictionary), cfg.encoder_embed_dim
        seed = int(torch.randint(2**31, (), device="cpu"))
        with torch.random.fork_rng(devices=[]):
            self.embed_tokens = nn.Embedding(N, C, self.pad)
            self.encoder = Transformer(cfg, cfg.encoder_layers, cfg.dropout, cfg.attention_dropout)
            self.decoder = None
            self.lm_head = None
            if needs_lm_head:
                if cfg.decoder_layers and not cfg.share_decoder_layers:
                    dropout = cfg.decoder_dropout
                    relative_bias = cfg.decoder_relative_bias
                    self.decoder = Transformer(
                        cfg, cfg.decoder_layers, dropout, dropout, relative_bias
                    )
                self.lm_head = LMHead(C, N, cfg.layer_norm_eps)
            self.classification_heads = nn.ModuleDict()
            self._initialize(seed)

    def _initialize(self, seed):
        """Initialises each module as BERT does, with a seed derived from the module's name.

        Models of one seed then agree in all modules of the same name and shape, whatever else each
        of them has: an MLM and MAE-LM start from the same encoder. A model on PyTorch's device
        `meta` gets its numbers later.
        """
        if self.embed_tokens.weight.is_meta:
            return
        for name, module in self.named_modules():
            torch.default_generator.manual_seed(zlib.crc32(f"{seed} {name}".encode()))
            init_bert_params(module)
        for module in self.modules():
            if isinstance(module, RelativePositionBias) and self.cfg.relative_position_local_init:
                module.init_local_heads()

    @classmethod
    def build_model(cls, cfg, task):
        """Builds the model for a task.

        If the task has `needs_lm_head = True`, the model has the language-model head of
        pretraining, and a decoder of its own if the options say so; otherwise, it is the encoder.
        """
        check_model_options(cfg)
        needs_lm_head = getattr(task, "needs_lm_head", False)
        if needs_lm_head:
            check_task_options(cfg, task)
        dictionary_fingerprint = fingerprint(task.source_dictionary)
        # A task that was loaded from a checkpoint has the checkpoint's fingerprint.
        if task.state.state_dict.get(FINGERPRINT, dictionary_fingerprint) != dictionary_fingerprint:
            raise UsageError(
                "the checkpoint was trained with another dict.txt: "
                "use the data that it was trained with"
            )
        task.state.merge_state_dict({FINGERPRINT: dictionary_fingerprint})  # fairseq saves it
        return cls(cfg, task.source_dictionary, needs_lm_head)

    def compile_layers(self, **options):
        """Compiles layers and language-model head with torch.compile, for each input shape.

        They are compiled when they are called. Weights keep their names. `options` are those of
        `torch.compile`. Training and validation, and the last batches of both, have shapes of their
        own; beyond MAX_COMPILED_SHAPES, layers are called without being compiled.
        """
        torch._dynamo.config.recompile_limit = MAX_COMPILED_SHAPES
        for module in self.modules():
            if isinstance(module, (TransformerLayer, LMHead)):
                module.compile(dynamic=False, **options)

    def forward(
        self,
        src_tokens,
        positions=None,
        masked_positions=None,
        num_predicted=None,
        has_padding=True,
        features_only=False,
        classification_head_name=None,
        src_lengths=None,
        masked_tokens=None,
    ):
        """Predicts the masked tokens; or returns features, as fairseq's fine-tuning tasks ask for.

        Args:
            src_tokens, positions, masked_positions, num_predicted, has_padding: of a
                `masking.MaskedBatch`; None for positions 0, 1, 2, ...
            features_only: return the encoder's output instead
            classification_head_name: return this head's output instead
            src_lengths, masked_tokens: not used; fairseq's own tasks and criterions pass them
        Returns: logits (B, K, N); for features and heads, as fairseq expects, a pair (tensor, None)
        """
        if features_only or classification_head_name is not None:
            encoded = self.forward_encoder(src_tokens, positions, has_padding)
            if classification_head_name is None:
                return encoded, None
            head = self.classification_heads[classification_head_name]
            return head(encoded, padding=src_tokens.eq(self.pad)), None
        if self.lm_head is None:
            raise UsageError(
                "this model was built without a language-model head: a task that pretrains sets "
                "needs_lm_head = True; others pass features_only=True or classification_head_name"
            )
        if self.decoder is None:
            decoded = self.forward_encoder_with_masks(
                src_tokens, positions, masked_positions, num_predicted, has_padding
            )
        else:
            encoded = self.forward_encoder(src_tokens, positions, has_padding)
            decoded = self.forward_decoder(
                encoded, positions, masked_positions, num_predicted, has_padding
            )
        return self.lm_head(decoded, self.embed_tokens.weight)

    def forward_encoder(self, tokens, positions=None, has_padding=True, all_layers=False):
        """(B, V) tokens at their original positions (B, V) -> (B, V, C); None for 0, 1, 2, ...

        With `all_layers`, it returns a list: layers 0 (the embeddings) to L, (B, V, C) each.
        """
        if positions is None:
            positions = torch.arange(tokens.size(1), device=tokens.device)
            positions = positions.masked_fill(tokens.eq(self.pad), NO_POSITION)
        return self.encoder(
            self.embed_tokens(tokens), positions, has_padding, all_layers=all_layers
        )

    def forward_decoder(
        self, encoded, positions, masked_positions, num_predicted, has_padding=True
    ):
        """The paper's decoder: appends [MASK] to the encoder's output, and predicts from both.

        Every row carries its position, so the order of rows is free: visible rows first, masked
        rows last. The predicted rows are then the last K, and the last layer computes only those.

        Args:
            encoded: (B, V, C)
            positions: (B, V)
            masked_positions: (B, M)
            num_predicted: K
        Returns: (B, K, C), the hidden states of the predicted rows
        """
        masks = self.embed_masks(masked_positions).to(encoded.dtype)
        x = torch.cat([encoded, masks], dim=1)
        positions = torch.cat([positions, masked_positions], dim=1)
        return self.decoder(x, positions, has_padding, num_output_rows=num_predicted)

    def forward_encoder_with_masks(
        self,
        tokens,
        positions,
        masked_positions,
        num_predicted=None,
        has_padding=True,
        all_layers=False,
    ):
        """Predicts by the encoder itself, of a model without a decoder of its own.

        With shared decoder layers, [MASK] enters before the encoder's last layers, and no other row
        attends to it. In an MLM, no masks enter: the tokens have them all. The visible rows are
        computed as in `forward_encoder`, whatever is masked. The rows have the same order as in
        `forward_decoder`, and here, too, the last layer computes only the predicted ones.

        Args:
            tokens, positions: (B, V)
            masked_positions: (B, M)
            num_predicted: K, or None for all rows
            all_layers: return layers 0 to L instead of the last one
        Returns: (B, K, C), or (B, V + M, C); with `all_layers` a list, of which the later layers
            have the masks
        """
        if masked_positions.size(1) and not self.num_shared_layers:
            raise UsageError(
                "--decoder-layers 0, but the encoder does not see all positions: it needs a decoder"
            )
        masks = Masks(self.embed_masks(masked_positions), masked_positions, self.num_shared_layers)
        x = self.embed_tokens(tokens)
        return self.encoder(x, positions, has_padding, num_predicted, masks, all_layers)

    def embed_masks(self, masked_positions):
        """(B, M) -> (B, M, C), the embedding of [MASK] without positions."""
        return self.embed_tokens.weight[self.mask_id].expand(*masked_positions.shape, -1)

    def max_positions(self):
        return self.cfg.max_positions

    def register_classification_head(self, name, num_classes):
        """Adds a head on `<s>` or the mean; fairseq's `sentence_prediction` calls it."""
        head_class = HEAD_OF_POOLING[str(self.cfg.classification_pooling)]
        head = head_class(self.cfg.encoder_embed_dim, num_classes, self.cfg.pooler_dropout)
        self.register_head(name, head)

    def register_head(self, name, head):
        """Adds one of `maelm_fairseq.heads`, newly initialised."""
        self.classification_heads[name] = head.apply(init_bert_params)

    def upgrade_state_dict(self, state_dict):
        """Fits the weights of a checkpoint to this model, in place.

        See `state_dicts.reset_mismatched_parts`.

        fairseq calls it before it loads weights; where it averages weights, that is at every
        update. Checkpoints are therefore checked where they are read, not here.
        """
        drop_non_weights(state_dict)
        reset_mismatched_parts(state_dict, self.state_dict())


def check_task_options(cfg, task):
    """Refuses a pretraining task that the model cannot do, and warns of options without effect."""
    tokens = task.max_positions()
    advice = "lower it, or raise --max-positions"
    check_positions(tokens, cfg.max_positions, f"--tokens-per-sample {tokens}", advice)
    if cfg.decoder_layers == 0:
        settings = getattr(task, "mask_settings", None)
        if settings is not None and settings.encoder_mask_fraction < 1:
            raise UsageError(
                "--decoder-layers 0 needs --encoder-mask-fraction 1 "
                f"(it is {settings.encoder_mask_fraction}): "
                "only a decoder can predict what the encoder does not see"
            )
        fade_updates = getattr(task.cfg, "encoder_mask_fade_updates", 0)
        if fade_updates:
            raise UsageError(
                f"--decoder-layers 0 contradicts --encoder-mask-fade-updates {fade_updates}: "
                "an MLM's encoder sees all masks to the end; make it 0"
            )
    if cfg.share_decoder_layers and cfg.decoder_relative_bias:
        logger.warning(
            "--decoder-relative-bias does nothing with --share-decoder-layers: "
            "they have the encoder's"
        )


def drop_non_weights(weights):
    """Removes entries that versions up to 0.2.0 stored although they are no weights."""
    for key in list(weights):
        if key == FINGERPRINT or key.endswith(".description"):
            del weights[key]


def register_architecture(name, sizes):
    """Registers an architecture as a model of its own, with its sizes as defaults of its dataclass.

    fairseq-hydra-train ignores register_model_architecture.
    """
    fields = []
    for option, size in sizes.items():
        base = MaeLmConfig.__dataclass_fields__[option]
        fields.append((option, base.type, field(default=size, metadata=base.metadata)))
    config_class = make_dataclass(name, fields, bases=(MaeLmConfig,))
    register_model(name, dataclass=config_class)(type(name, (MaeLmModel,), {}))


for architecture, architecture_sizes in ARCHITECTURES.items():
    register_architecture(architecture, architecture_sizes)
