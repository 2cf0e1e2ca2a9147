"""Masked language models of Hugging Face's transformers in a plain training loop.

pretrain_step.py compares the plugin's models with them. Their feed-forward layers take as much
compute as the plugin's: ModernBERT's GeGLU has three matrices, of two thirds of the width.
"""

import itertools

import torch

from common import Training
from maelm_fairseq.layers import last_rows

PEERS = ["RoBERTa, transformers", "ModernBERT, transformers"]
FLASH = "flash attention"  # of the package flash_attn, for a GPU
COMPILED = "compiled"
IGNORED_LABEL = -100  # as a label


def build_peer(name, args, vocabulary):
    """A model of PEERS on PyTorch's current device, as large as the plugin's encoder."""
    import transformers

    feed_forward_width = 4 * args.width
    options = dict(
        vocab_size=vocabulary,
        hidden_size=args.width,
        num_hidden_layers=args.layers,
        num_attention_heads=args.heads,
        attn_implementation="flash_attention_2" if FLASH in name else "sdpa",
    )
    options.update(bos_token_id=0, pad_token_id=1, eos_token_id=2, cls_token_id=0, sep_token_id=2)
    if "ModernBERT" in name:
        config = transformers.ModernBertConfig(
            sparse_prediction=True,
            max_position_embeddings=args.tokens,
            intermediate_size=2 * feed_forward_width // 3,
            global_attn_every_n_layers=1,
            attention_dropout=args.attention_dropout,
            **options,
        )
        return transformers.ModernBertForMaskedLM(config)
    config = transformers.RobertaConfig(
        max_position_embeddings=args.tokens + 2,
        intermediate_size=feed_forward_width,
        hidden_dropout_prob=args.dropout,
        attention_probs_dropout_prob=args.attention_dropout,
        **options,
    )
    return transformers.RobertaForMaskedLM(config)


def labelled(sample, pad):
    """A batch of the plugin's MLM in the order of the text.

    Returns: tokens, labels and an attention mask, (B, T) each; no mask, None, without padding
    """
    inputs = sample["net_input"]
    target = sample["target"]
    positions = inputs["positions"]
    # Padding goes to a further column, which is cut off below.
    positions = positions.masked_fill(positions < 0, positions.size(1))
    tokens = torch.full((len(positions), positions.size(1) + 1), pad)
    tokens.scatter_(1, positions, inputs["src_tokens"])
    labels = torch.full_like(tokens, IGNORED_LABEL)
    labels.scatter_(1, last_rows(positions, target.size(1)), target)
    tokens = tokens[:, :-1].contiguous()
    labels = labels[:, :-1].contiguous()
    mask = tokens.ne(pad).long() if inputs["has_padding"] else None
    return tokens, labels, mask


class PlainTraining(Training):
    """A model of PEERS that trains on an endless cycle of the batches of the plugin's MLM.

    A step clips gradients, and uses a fused AdamW.
    """

    def __init__(self, name, args, arguments):
        super().__init__(arguments, args.device, args.accumulate)
        del self.trainer  # and the MLM
        dictionary = self.task.source_dictionary
        self.autocast = torch.autocast(args.device, torch.bfloat16, enabled="bfloat16" in name)
        dtype = torch.bfloat16 if FLASH in name else torch.float32  # flash_attn has no float32
        self.model = build_peer(name, args, len(dictionary)).to(args.device, dtype).train()
        if COMPILED in name:
            self.model.compile()
        weights = self.model.parameters()
        self.optimizer = torch.optim.AdamW(weights, lr=1e-4, betas=(0.9, 0.98), fused=True)
        batches = []
        for batch in self.batches:
            tensors = labelled(batch, dictionary.pad())
            batches.append([x if x is None else x.to(args.device) for x in tensors])
        self.cycle = itertools.cycle(batches)

    def step(self, batches):
        for tokens, labels, mask in batches:
            with self.autocast:
                loss = self.model(input_ids=tokens, labels=labels, attention_mask=mask).loss
            loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 2.0)
        self.optimizer.step()
        self.optimizer.zero_grad()
