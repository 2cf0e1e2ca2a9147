"""MAE-LM (Meng et al., ICLR 2024, https://arxiv.org/abs/2302.02060) for transformers 4.45 or newer.

The encoder is a post-LN Transformer with learned positions and, optionally, a relative position
bias. Masked language modelling leaves `<mask>` out of the encoder: its attention does not see the
masks, and a shallow decoder puts them back and predicts. With `share_decoder_layers` the decoder is
the encoder's last layers: `<mask>` enters before them, attends to all tokens, and is attended to by
other masks only.
This file needs torch and transformers only; it was written by the export of maelm_fairseq (MIT
licence).

Letters in shapes: B texts, T tokens, C width, H heads, P positions, N vocabulary.
"""

import math

import torch
import torch.nn.functional as F
from torch import nn
from transformers import PretrainedConfig, PreTrainedModel, modeling_outputs

# Attention logit of tokens that are not visible: a weight of exactly 0, and finite in half
# precision.
NOT_VISIBLE = -3e4


class MaeLmConfig(PretrainedConfig):
    """Sizes and options, which config.json gives. Besides those of all models of transformers:

    Args:
        max_position_embeddings: P, most tokens of a text
        relative_position_num_buckets: of the encoder's bias; 0 for none
        relative_position_max_distance: this and all larger distances share a bucket
        relative_position_buckets: how distances share buckets: "authors", as in MAE-LM's release,
            or "t5"
        decoder_layers: 0 for a masked language model without decoder
        share_decoder_layers: whether the decoder's layers are the encoder's last ones, instead of
            its own
        decoder_dropout: dropout and attention dropout of the decoder
        decoder_relative_bias: whether the decoder has a bias of its own
        masks_in_encoder: whether the encoder sees `<mask>` in masked language modelling, as BERT
            does
        classifier_dropout: of the heads
        classifier_pooling: what the head for sequence classification reads: "first" for the
            features of `<s>`, "mean" for the mean of those of all other tokens
    """

    model_type = "mae_lm"


def bucket_of(distance, config):
    """The bucket of each distance from query to key, int64 of any shape.

    A bucket has one distance near 0, and logarithmically more of them further away.
    """
    half = config.relative_position_num_buckets // 2  # for each direction
    exact = half // 2  # buckets of one distance
    is_t5 = config.relative_position_buckets == "t5"
    n = distance.abs()
    longest = config.relative_position_max_distance
    if not is_t5:
        longest -= 1
    ratio = longest / exact
    share = (n.clamp(min=exact).double() / exact).log() / math.log(ratio)
    if is_t5:
        # The logarithm may be just below an integer.
        far = exact + (share * (half - exact) + 1e-9).long()
        bucket = torch.where(n < exact, n, far.clamp(max=half - 1))
        return bucket + half * (distance > 0)
    far = exact + (share * (half - 1 - exact)).ceil().long()
    bucket = torch.where(n < exact, n, far.clamp(max=half - 1))
    return distance.sign() * bucket + half - 1


class RelativePositionBias(nn.Module):
    """A bias for each head and bucket of distances, -P to P.

    Every layer adds it to its attention logits. The buckets are saved with the weights, since
    another machine may round logarithms differently.
    """

    def __init__(self, config):
        super().__init__()
        P = config.max_position_embeddings
        self.table = nn.Embedding(config.relative_position_num_buckets, config.num_attention_heads)
        self.register_buffer("bucket", bucket_of(torch.arange(-P, P + 1), config))

    def forward(self, positions):
        """(B, T) -> (B, H, T, T)."""
        distance = positions[:, None, :] - positions[:, :, None] + len(self.bucket) // 2
        return self.table(self.bucket).t()[:, distance].transpose(0, 1)


class Attention(nn.Module):
    """Multi-head attention."""

    def __init__(self, config, dropout):
        super().__init__()
        width = config.hidden_size
        self.heads = config.num_attention_heads
        self.dropout = dropout
        self.query = nn.Linear(width, width)
        self.key_value = nn.Linear(width, 2 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x, bias, eager):
        """(B, T, C), bias (B, H or 1, T or 1, T) -> (B, T, C).

        The second result is None, or if `eager` the attention weights, (B, H, T, T).
        """
        parts = [self.query(x), *self.key_value(x).chunk(2, -1)]
        query, key, value = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)
        bias = bias.to(query.dtype)
        dropout = self.dropout if self.training else 0.0
        weights = None
        if eager:
            logits = query @ key.transpose(2, 3) / math.sqrt(query.size(-1))
            weights = (logits + bias).softmax(-1)
            attended = F.dropout(weights, dropout) @ value
        else:
            attended = F.scaled_dot_product_attention(
                query, key, value, attn_mask=bias, dropout_p=dropout
            )
        # Always a copy: in ONNX another kernel computes this, whose result has no view of the
        # shape that follows.
        attended = attended.transpose(1, 2).clone(memory_format=torch.contiguous_format)
        return self.out(attended.flatten(2)), weights


class TransformerLayer(nn.Module):
    """Post-LN layer as in BERT."""

    def __init__(self, config, dropout, attention_dropout):
        super().__init__()
        width, ffn_width = config.hidden_size, config.intermediate_size
        self.attention = Attention(config, attention_dropout)
        self.attention_norm = nn.LayerNorm(width, eps=config.layer_norm_eps)
        self.ffn = nn.Sequential(nn.Linear(width, ffn_width), nn.Linear(ffn_width, width))
        self.ffn_norm = nn.LayerNorm(width, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x, bias, eager):
        """(B, T, C) -> (B, T, C), and if `eager` the attention weights."""
        attended, weights = self.attention(x, bias, eager)
        x = self.attention_norm(x + self.dropout(attended))
        ffn = self.ffn[1](F.gelu(self.ffn[0](x)))
        return self.ffn_norm(x + self.dropout(ffn)), weights


class Transformer(nn.Module):
    """Position embeddings, LayerNorm, dropout and layers: the encoder and the decoder."""

    def __init__(self, config, layers, dropout, attention_dropout, relative_bias):
        super().__init__()
        C, P = config.hidden_size, config.max_position_embeddings
        self.embed_positions = nn.Embedding(P + 1, C, padding_idx=0)
        self.norm = nn.LayerNorm(C, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(dropout)
        self.relative_bias = RelativePositionBias(config) if relative_bias else None
        self.layers = nn.ModuleList()
        for _ in range(layers):
            self.layers.append(TransformerLayer(config, dropout, attention_dropout))
        self.gradient_checkpointing = False

    def forward(self, x, positions, visible, eager=False, masked=None, masked_layers=0):
        """Runs the layers.

        Args:
            x: (B, T, C)
            positions: (B, T), -1 for padding
            visible: (B, T) bool, which tokens are attended to
            eager: compute attention weights explicitly
            masked: (B, T) bool, tokens that only enter before the last `masked_layers` layers,
                where they attend to each other, too; None if all tokens enter at once
            masked_layers: number of layers
        Returns: two lists
            the input of the first layer and the outputs of all, (B, T, C) each
            the attention weights of each layer
        """
        x = self.dropout(self.norm(x + self.embed_positions(positions + 1)))
        position_bias = (
            x.new_zeros(()) if self.relative_bias is None else self.relative_bias(positions)
        )
        visible = visible[:, None, None, :]
        bias = torch.where(visible, position_bias, NOT_VISIBLE)
        hidden_states = [x]
        attentions = []
        for i, layer in enumerate(self.layers):
            if masked is not None and i == len(self.layers) - masked_layers:
                x = torch.where(masked[..., None], hidden_states[0], x)
                both_masked = masked[:, None, :, None] & masked[:, None, None, :]
                bias = torch.where(visible | both_masked, position_bias, NOT_VISIBLE)
            if self.gradient_checkpointing and self.training:
                x, weights = self._gradient_checkpointing_func(layer.__call__, x, bias, eager)
            else:
                x, weights = layer(x, bias, eager)
            hidden_states.append(x)
            attentions.append(weights)
        return hidden_states, attentions


class MaeLmPreTrainedModel(PreTrainedModel):
    """What all classes here share."""

    config_class = MaeLmConfig
    base_model_prefix = "mae_lm"
    supports_gradient_checkpointing = True
    _supports_sdpa = True
    _no_split_modules = ["TransformerLayer"]
    # Weights of the masked language model.
    _keys_to_ignore_on_load_unexpected = [r"^decoder\.", r"^lm_head\."]

    def _init_weights(self, module):
        """As BERT, with functions of torch.nn.init: transformers keeps them from loaded weights."""
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, 0.0, self.config.initializer_range)
            if getattr(module, "bias", None) is not None:
                nn.init.zeros_(module.bias)
            if getattr(module, "padding_idx", None) is not None:
                nn.init.zeros_(module.weight[module.padding_idx])
        elif isinstance(module, nn.LayerNorm):
            nn.init.ones_(module.weight)
            nn.init.zeros_(module.bias)

    def get_input_embeddings(self):
        return self.base_model.embed_tokens

    def set_input_embeddings(self, embeddings):
        self.base_model.embed_tokens = embeddings

    def get_output_embeddings(self):
        return None

    def result(self, output_class, outputs, return_dict, **of_head):
        """An output of transformers, or a tuple of what it has.

        Args:
            output_class: class of the output
            outputs: those of the encoder
            return_dict: whether it is no tuple; None: the configuration decides
            of_head: the fields of the output that the encoder does not have
        """
        output = output_class(
            **of_head, hidden_states=outputs.hidden_states, attentions=outputs.attentions
        )
        if return_dict is None:
            return_dict = self.config.return_dict and not getattr(self.config, "torchscript", False)
        return output if return_dict else output.to_tuple()


class MaeLmModel(MaeLmPreTrainedModel):
    """The encoder: features of each token."""

    def __init__(self, config):
        super().__init__(config)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size, config.pad_token_id)
        self.encoder = Transformer(
            config,
            config.num_hidden_layers,
            config.hidden_dropout_prob,
            config.attention_probs_dropout_prob,
            relative_bias=config.relative_position_num_buckets > 0,
        )
        self.post_init()

    def forward(
        self,
        input_ids=None,
        attention_mask=None,
        position_ids=None,
        inputs_embeds=None,
        output_attentions=None,
        output_hidden_states=None,
        return_dict=None,
        masked=None,
        token_type_ids=None,
    ):
        """Computes features.

        Args:
            input_ids: (B, T); or `inputs_embeds`, (B, T, C)
            attention_mask: (B, T), 1 for tokens and 0 for padding, at either side; None: all but
                `<pad>` are tokens
            position_ids: (B, T); None: 0, 1, 2, ... from the first token on
            token_type_ids: ignored, as by MPNet; all classes here take it
            masked: (B, T) bool, tokens that no other tokens attend to, or None; with
                `share_decoder_layers` they enter before the decoder's layers, and attend to each
                other, too
        Returns: BaseModelOutput with `last_hidden_state` (B, T, C)
        """
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError("expected either input_ids or inputs_embeds")
        positions = self.positions(input_ids, attention_mask, position_ids, inputs_embeds)
        visible = positions >= 0
        if masked is not None:
            masked = masked & visible
            visible = visible & ~masked
        x = self.embed_tokens(input_ids) if inputs_embeds is None else inputs_embeds
        config = self.config
        if output_attentions is None:
            output_attentions = config.output_attentions
        if output_hidden_states is None:
            output_hidden_states = config.output_hidden_states
        eager = output_attentions or config._attn_implementation == "eager"
        masked_layers = config.decoder_layers if config.share_decoder_layers else 0
        hidden_states, attentions = self.encoder(
            x, positions, visible, eager, masked, masked_layers
        )
        output_class = modeling_outputs.BaseModelOutput
        outputs = output_class(
            hidden_states=tuple(hidden_states) if output_hidden_states else None,
            attentions=tuple(attentions) if output_attentions else None,
        )
        last = hidden_states[-1]
        return self.result(output_class, outputs, return_dict, last_hidden_state=last)

    def positions(self, input_ids=None, attention_mask=None, position_ids=None, inputs_embeds=None):
        """The position of each token, (B, T): -1 for padding."""
        B, T = (inputs_embeds if input_ids is None else input_ids).shape[:2]
        P = self.config.max_position_embeddings
        if T > P:
            raise ValueError(
                f"{T} tokens, but the model has {P} positions: pass truncation=True to the "
                "tokenizer"
            )
        if attention_mask is not None:
            real = attention_mask.bool()
        elif input_ids is not None:
            real = input_ids.ne(self.config.pad_token_id)
        else:
            real = torch.ones(B, T, dtype=torch.bool, device=inputs_embeds.device)
        positions = real.long().cumsum(1) - 1 if position_ids is None else position_ids.expand(B, T)
        return positions.masked_fill(~real, -1)


def token_loss(logits, labels):
    """The cross-entropy of logits (B, T, classes) on labels (B, T), -100 where there is none.

    It is None without labels.
    """
    if labels is None:
        return None
    return F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())


class LMHead(nn.Module):
    """Linear, GELU, LayerNorm, then a linear layer whose weight is tied to the token embedding."""

    def __init__(self, config):
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.decoder = nn.Linear(config.hidden_size, config.vocab_size)

    def forward(self, x):
        """(B, T, C) -> (B, T, N) logits."""
        return self.decoder(self.norm(F.gelu(self.dense(x))))


class MaeLmForMaskedLM(MaeLmPreTrainedModel):
    """Predicts tokens at `<mask>` as in pretraining.

    The masks are hidden from the encoder, and put back before the decoder. Shared decoder layers
    are the encoder's last ones, in which the other tokens do not attend to `<mask>` either.
    """

    _keys_to_ignore_on_load_unexpected = None
    _tied_weights_keys = {"lm_head.decoder.weight": "mae_lm.embed_tokens.weight"}

    def __init__(self, config):
        super().__init__(config)
        self.mae_lm = MaeLmModel(config)
        self.decoder = None
        if config.decoder_layers and not config.share_decoder_layers:
            self.decoder = Transformer(
                config,
                config.decoder_layers,
                dropout=config.decoder_dropout,
                attention_dropout=config.decoder_dropout,
                relative_bias=config.decoder_relative_bias,
            )
        self.lm_head = LMHead(config)
        self.post_init()

    def get_output_embeddings(self):
        return self.lm_head.decoder

    def set_output_embeddings(self, embeddings):
        self.lm_head.decoder = embeddings

    def forward(
        self,
        input_ids=None,
        attention_mask=None,
        position_ids=None,
        labels=None,
        output_attentions=None,
        output_hidden_states=None,
        return_dict=None,
        token_type_ids=None,
    ):
        """Computes logits.

        Args:
            labels: (B, T), tokens to predict, -100 elsewhere
            others: as for `MaeLmModel`
        Returns: MaskedLMOutput with `logits` (B, T, N); hidden states and attentions are those of
            the encoder
        """
        config = self.config
        model = self.mae_lm
        masked = None if config.masks_in_encoder else input_ids.eq(config.mask_token_id)
        inputs = input_ids, attention_mask, position_ids, None
        outputs = model(*inputs, output_attentions, output_hidden_states, True, masked)
        x = outputs.last_hidden_state
        if self.decoder is not None:
            if masked is not None:
                embedded = model.embed_tokens(input_ids.new_tensor(config.mask_token_id))
                x = torch.where(masked[..., None], embedded.to(x.dtype), x)
            positions = model.positions(*inputs)
            eager = config._attn_implementation == "eager"
            hidden_states, _ = self.decoder(x, positions, positions >= 0, eager)
            x = hidden_states[-1]
        logits = self.lm_head(x)
        loss = token_loss(logits, labels)
        output_class = modeling_outputs.MaskedLMOutput
        return self.result(output_class, outputs, return_dict, loss=loss, logits=logits)


class ClassificationHead(nn.Module):
    """Dropout, linear, tanh, dropout, linear."""

    def __init__(self, config):
        super().__init__()
        self.dropout = nn.Dropout(config.classifier_dropout)
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.out_proj = nn.Linear(config.hidden_size, config.num_labels)

    def forward(self, x):
        """(B, C) -> (B, labels)."""
        return self.out_proj(self.dropout(torch.tanh(self.dense(self.dropout(x)))))


class MaeLmForSequenceClassification(MaeLmPreTrainedModel):
    """Classes or scores of whole texts, from `<s>` or the mean of all other tokens."""

    def __init__(self, config):
        super().__init__(config)
        self.mae_lm = MaeLmModel(config)
        self.classifier = ClassificationHead(config)
        self.post_init()

    def forward(
        self,
        input_ids=None,
        attention_mask=None,
        position_ids=None,
        inputs_embeds=None,
        labels=None,
        output_attentions=None,
        output_hidden_states=None,
        return_dict=None,
        token_type_ids=None,
    ):
        """Computes logits (B, labels).

        The argument `labels` is (B,): classes, or scores if the model has one label; or it is
        (B, labels), 0 and 1.
        """
        inputs = input_ids, attention_mask, position_ids, inputs_embeds
        outputs = self.mae_lm(*inputs, output_attentions, output_hidden_states, True)
        real = self.mae_lm.positions(*inputs) >= 0
        first = real & real.long().cumsum(1).eq(1)
        pooled = real & ~first if self.config.classifier_pooling == "mean" else first
        total = (outputs.last_hidden_state * pooled[..., None]).sum(1)
        x = total / pooled.sum(1, keepdim=True).clamp(min=1)
        logits = self.classifier(x)
        loss = None if labels is None else self.loss(logits.float(), labels)
        output_class = modeling_outputs.SequenceClassifierOutput
        return self.result(output_class, outputs, return_dict, loss=loss, logits=logits)

    def loss(self, logits, labels):
        """Mean squared error for scores, else binary cross-entropy or cross-entropy.

        Cross-entropy is for one class a text, binary cross-entropy for any number of them.
        """
        problem = self.config.problem_type
        are_scores = problem == "regression" and labels.shape == logits.shape
        if self.config.num_labels == 1 or are_scores:
            return F.mse_loss(logits.flatten(), labels.float().flatten())
        if problem == "multi_label_classification" or labels.is_floating_point():
            return F.binary_cross_entropy_with_logits(logits, labels.float())
        return F.cross_entropy(logits, labels.flatten())


class MaeLmForTokenClassification(MaeLmPreTrainedModel):
    """Classes of tokens."""

    def __init__(self, config):
        super().__init__(config)
        self.mae_lm = MaeLmModel(config)
        self.dropout = nn.Dropout(config.classifier_dropout)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)
        self.post_init()

    def forward(
        self,
        input_ids=None,
        attention_mask=None,
        position_ids=None,
        inputs_embeds=None,
        labels=None,
        output_attentions=None,
        output_hidden_states=None,
        return_dict=None,
        token_type_ids=None,
    ):
        """Computes logits (B, T, labels).

        The argument `labels` is (B, T): classes, -100 for tokens that do not count.
        """
        inputs = input_ids, attention_mask, position_ids, inputs_embeds
        outputs = self.mae_lm(*inputs, output_attentions, output_hidden_states, True)
        logits = self.classifier(self.dropout(outputs.last_hidden_state))
        loss = token_loss(logits, labels)
        output_class = modeling_outputs.TokenClassifierOutput
        return self.result(output_class, outputs, return_dict, loss=loss, logits=logits)


class MaeLmForQuestionAnswering(MaeLmPreTrainedModel):
    """Start and end of an answer."""

    def __init__(self, config):
        super().__init__(config)
        self.mae_lm = MaeLmModel(config)
        self.qa_outputs = nn.Linear(config.hidden_size, 2)
        self.post_init()

    def forward(
        self,
        input_ids=None,
        attention_mask=None,
        position_ids=None,
        inputs_embeds=None,
        start_positions=None,
        end_positions=None,
        output_attentions=None,
        output_hidden_states=None,
        return_dict=None,
        token_type_ids=None,
    ):
        """Computes start and end logits (B, T).

        There is a loss if the positions (B,) of the answer's first and last token are given.
        """
        inputs = input_ids, attention_mask, position_ids, inputs_embeds
        outputs = self.mae_lm(*inputs, output_attentions, output_hidden_states, True)
        start, end = self.qa_outputs(outputs.last_hidden_state).unbind(-1)
        loss = None
        if start_positions is not None and end_positions is not None:
            outside = start.size(1)  # of the text: an answer that was cut off has no loss
            losses = []
            for logits, positions in [(start, start_positions), (end, end_positions)]:
                target = positions.flatten().clamp(0, outside)
                losses.append(F.cross_entropy(logits.float(), target, ignore_index=outside))
            loss = sum(losses) / 2
        output_class = modeling_outputs.QuestionAnsweringModelOutput
        return self.result(
            output_class, outputs, return_dict, loss=loss, start_logits=start, end_logits=end
        )
