"""A small model with a batch of random lines, and what the naive implementation makes of it."""

import numpy as np
import torch
from fairseq.data import indexed_dataset
from omegaconf import OmegaConf

import naive
from maelm_fairseq.base_task import make_task
from maelm_fairseq.criterion import MaeLmCriterion
from maelm_fairseq.task import MaeLmTask, MaeLmTaskConfig

# Every second symbol begins a word, as SentencePiece marks it.
SYMBOLS = [f"\u2581piece{i}" if i % 2 else f"piece{i}" for i in range(45)]
SIZES = dict(
    encoder_layers=2,
    encoder_embed_dim=16,
    encoder_ffn_embed_dim=24,
    encoder_attention_heads=2,
    decoder_layers=2,
    dropout=0.0,
    attention_dropout=0.0,
    max_positions=32,
    relative_position_num_buckets=8,
    relative_position_max_distance=12,  # lines are longer, so that the last buckets are used
)


# The number of tokens of each line, with `</s>` and without `<s>`.
LENGTHS = {"equal": [19] * 4, "mixed": [24, 1, 9, 2, 24, 17], "one token": [1, 1, 1]}
LONG = {"long": [150, 141]}  # reaches the last of T5's buckets
MLM = dict(encoder_mask_fraction=1.0, decoder_layers=0)
SHARED = dict(encoder_layers=3, decoder_layers=2, share_decoder_layers=True)


class Setting:
    """Binarized lines of random tokens, the task that reads them, a model, a batch of all lines.

    `lengths` is a key of LENGTHS or LONG; `options` are those of task and model.
    """

    def __init__(self, folder, lengths="mixed", dtype=torch.float64, **options):
        of_task = MaeLmTaskConfig.__dataclass_fields__.keys() & options.keys()
        task_options = {name: options.pop(name) for name in of_task}
        rng = np.random.default_rng(1)
        self.lines = []
        for length in {**LENGTHS, **LONG}[lengths]:
            words = rng.integers(4, 4 + len(SYMBOLS), length - 1).tolist()
            self.lines.append([*words, 2])
        dictionary = "".join(f"{symbol} 1\n" for symbol in SYMBOLS)
        (folder / "dict.txt").write_text(dictionary, encoding="utf-8")
        write(folder / "train", [line[:-1] for line in self.lines])
        config = dict(sample_break_mode="eos", tokens_per_sample=32, mask_prob=0.4, seed=5)
        self.task = make_task(MaeLmTask, **{"data": str(folder), **config, **task_options})
        self.task.load_dataset("train")
        dataset = self.task.dataset("train")
        dataset.set_epoch(1)
        self.batch = dataset.collater([dataset[i] for i in range(len(dataset))])
        self.inputs = self.batch["net_input"]
        self.model = build(self.task, "mae_lm", **{**SIZES, **options}).to(dtype)
        enlarge(self.model)
        self.bos = self.task.dictionary.index("<s>")
        self.pad = self.task.dictionary.index("<pad>")
        self.mask = self.task.dictionary.index("<mask>")

    def loss(self):
        """The plugin's loss, computed by its criterion."""
        loss, predicted, _ = MaeLmCriterion(self.task)(self.model, self.batch)
        assert predicted == self.batch["target"].ne(self.pad).sum()
        return loss

    def original(self):
        """What naive.loss takes: tokens, seen, predicted, each (B, T) in the original order.

        Checks on the way that each position is either visible or left out.
        """
        originals = [[self.bos, *self.lines[i]] for i in self.batch["id"]]
        shape = len(originals), max(map(len, originals))
        tokens = torch.full(shape, self.pad)
        seen = torch.full(shape, naive.NOT_SEEN)
        predicted = torch.zeros(shape, dtype=torch.bool)
        positions = torch.cat([self.inputs["positions"], self.inputs["masked_positions"]], dim=1)
        V = self.inputs["src_tokens"].size(1)
        first_predicted = positions.size(1) - self.inputs["num_predicted"]  # they are the last rows
        for b, original in enumerate(originals):
            tokens[b, : len(original)] = torch.tensor(original)
            rows = [(row, p) for row, p in enumerate(positions[b].tolist()) if p >= 0]
            assert sorted(p for _, p in rows) == list(range(len(original)))
            for row, p in rows:
                if row < V:
                    seen[b, p] = self.inputs["src_tokens"][b, row]
                if row >= first_predicted:
                    predicted[b, p] = True
                    assert self.batch["target"][b, row - first_predicted] == tokens[b, p]
        context = (seen != naive.NOT_SEEN) & ~predicted
        assert torch.equal(seen[context], tokens[context])
        assert not predicted[:, 0].any()
        return dict(tokens=tokens, seen=seen, predicted=predicted)

    def naive_loss(self, w, **inputs):
        cfg = self.model.cfg
        return naive.loss(
            w,
            **inputs,
            heads=cfg.encoder_attention_heads,
            pad=self.pad,
            mask=self.mask,
            max_distance=cfg.relative_position_max_distance,
            shared=cfg.decoder_layers if cfg.share_decoder_layers else 0,
        )

    def weights(self):
        """The model's weights by name: copies that collect gradients of their own."""
        return {
            name: weight.detach().clone().requires_grad_()
            for name, weight in self.model.named_parameters()
        }


def build(task, name, **sizes):
    torch.manual_seed(1)
    return task.build_model(OmegaConf.create({"_name": name, **sizes}))


def enlarge(model):
    """Makes a wrong formula change the loss: weights become large, biases and LayerNorms uneven."""
    for name, weight in model.named_parameters():
        if name.endswith("table.weight"):
            weight.data *= 50
        elif weight.dim() == 2:
            weight.data *= 20
        else:
            weight.data += 0.2 * torch.randn_like(weight)


EOS = 2


def write(prefix, lines):
    """Binarizes lines of token indices, with `</s>` after each."""
    builder = indexed_dataset.MMapIndexedDatasetBuilder(f"{prefix}.bin", dtype=np.uint16)
    for line in lines:
        builder.add_item(torch.tensor([*line, EOS]))
    builder.finalize(f"{prefix}.idx")
    return str(prefix)


ONE_LAYER = dict(
    encoder_layers=1,
    encoder_embed_dim=16,
    encoder_ffn_embed_dim=8,
    encoder_attention_heads=2,
    decoder_layers=1,
)
