"""Masked language models of Hugging Face's transformers in a plain training loop, as peers of pretrain_step.py.

Their feed-forward layers have the plugin's compute: ModernBERT's GeGLU has three matrices, of two thirds of the width.
"""

import itertools

import torch

from common import Training
from maelm_fairseq.layers import last

NAMES = ["RoBERTa, transformers", "ModernBERT, transformers"]
FLASH = "flash attention"  # of the package flash_attn, for a GPU
COMPILED = "compiled"
IGNORED = -100  # as a label


def build(name, args, vocabulary):
    """A model of NAMES, as large as an encoder of the plugin's; on PyTorch's current device."""
    import transformers

    C, heads, F = args.width, args.heads, 4 * args.width
    sizes = dict(vocab_size=vocabulary, hidden_size=C, num_hidden_layers=args.layers, num_attention_heads=heads)
    sizes.update(bos_token_id=0, pad_token_id=1, eos_token_id=2, cls_token_id=0, sep_token_id=2)
    attention = "flash_attention_2" if FLASH in name else "sdpa"
    sizes.update(attn_implementation=attention, attention_dropout=args.attention_dropout)
    if "ModernBERT" in name:
        sizes.update(max_position_embeddings=args.tokens, intermediate_size=2 * F // 3, global_attn_every_n_layers=1)
        return transformers.ModernBertForMaskedLM(transformers.ModernBertConfig(sparse_prediction=True, **sizes))
    sizes.update(max_position_embeddings=args.tokens + 2, intermediate_size=F, hidden_dropout_prob=args.dropout)
    sizes.update(attention_probs_dropout_prob=sizes.pop("attention_dropout"))
    return transformers.RobertaForMaskedLM(transformers.RobertaConfig(**sizes))


def labelled(sample, pad):
    """A batch of the plugin's MLM in the order of the text: tokens and labels (B, T), attention mask or None."""
    inputs, target = sample["net_input"], sample["target"]
    positions = inputs["positions"]
    positions = positions.masked_fill(positions < 0, positions.size(1))  # of padding, which is cut off
    tokens = torch.full((len(positions), positions.size(1) + 1), pad)
    tokens.scatter_(1, positions, inputs["src_tokens"])
    labels = torch.full_like(tokens, IGNORED)
    labels.scatter_(1, last(positions, target.size(1)), target)
    tokens, labels = tokens[:, :-1].contiguous(), labels[:, :-1].contiguous()
    return tokens, labels, tokens.ne(pad).long() if inputs["padded"] else None


class PlainTraining(Training):
    """A model of NAMES, in an endless cycle of the batches of the plugin's MLM; a step clips, and has a fused AdamW."""

    def __init__(self, name, args, arguments):
        super().__init__(arguments, args.device, args.accumulate)
        del self.trainer  # and the MLM
        dictionary = self.task.source_dictionary
        self.autocast = torch.autocast(args.device, torch.bfloat16, enabled="bfloat16" in name)
        dtype = torch.bfloat16 if FLASH in name else torch.float32  # its kernels have no other
        self.model = build(name, args, len(dictionary)).to(args.device, dtype).train()
        if COMPILED in name:
            self.model.compile()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4, betas=(0.9, 0.98), fused=True)
        batches = [labelled(batch, dictionary.pad()) for batch in self.batches]
        self.cycle = itertools.cycle([[x if x is None else x.to(args.device) for x in batch] for batch in batches])

    def step(self, batches):
        for tokens, labels, mask in batches:
            with self.autocast:
                loss = self.model(input_ids=tokens, labels=labels, attention_mask=mask).loss
            loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 2.0)
        self.optimizer.step()
        self.optimizer.zero_grad()
