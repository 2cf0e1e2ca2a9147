"""Probes checkpoints within runs, and the layers of MAE-LM's decoder: exploratory scores beside those of a comparison.

    experiments/probe_checkpoints.sh --checkpoint mlm-2-3000.pt mlm-2-6000.pt --data DIR --labelled DIR
    experiments/probe_checkpoints.sh --checkpoint model.pt --names mae_lm-1 --decoder --data DIR --labelled DIR

The first evaluates checkpoints within runs, called RUN-UPDATE, on all tasks of the plan: frozen features, averaged over
tokens. The second evaluates the layers of MAE-LM's decoder on text without [MASK], on the two tasks on word order; its
layer 0 is its input, the encoder's output with positions. The probes are those of recipes/evaluate.sh. Scores that are
in later-scores.json, in the plan's folder of records, are not computed again.
"""

import argparse
import os

import torch

from evaluation.features import Encoder, compute
from evaluation.labelled_tasks import REGRESSION, load_task
from evaluation.outcomes import CHOSEN, Outcome
from evaluation.probes import STRENGTHS, probe
from maelm_fairseq.base import errors
from maelm_fairseq.masking import NO_POSITION
from plans import PLANS, SCORES
from preregistration import MADE
from record_store import PROBED, RECORDS, Records


class Decoder:
    """The interface that :func:`evaluation.features.compute` needs, for the decoder's layers instead of the encoder's.

    Args:
        model: :class:`~maelm_fairseq.hub.MaeLm`
    """

    def __init__(self, model):
        if model.model.decoder is None:
            raise errors.UsageError("--decoder: the model has no decoder of its own")
        self.encode, self.model, self.dictionary = model.encode, model.model, model.dictionary

    @torch.no_grad()
    def extract_features(self, tokens, all_layers=True):
        """Tokens (B, T), padded at the end -> (D + 1, B, T, C), zeros at padding."""
        tokens, hidden = tokens.to(self.model.embed_tokens.weight.device), []
        padding = tokens.eq(self.dictionary.pad())
        positions = torch.arange(tokens.size(1), device=tokens.device).masked_fill(padding, NO_POSITION)
        encoded = self.model.forward_encoder(tokens, positions, padded=True)
        self.model.decoder(encoded, positions, padded=True, hidden=hidden)
        return torch.stack(hidden).masked_fill(padding[..., None], 0)


def score(model, task):
    """The score of a task by layer, and that of the layers that the training folds select."""
    probed = probe(compute(model, task.texts)["mean"], task, STRENGTHS)
    summary = Outcome(dict(metric=task.metric), task.ids, task.targets, task.folds, **probed).summary()
    return {name: summary[name] for name in (CHOSEN, "by_layer")}


def main():
    parser = errors.Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--checkpoint", nargs="+", required=True, metavar="FILE", help="models; RUN-UPDATE.pt without --names")
    add("--names", nargs="+", default=[], metavar="NAME", help="their names (default: the files')")
    add("--decoder", action="store_true", help="evaluate the decoder's layers")
    add("--data", required=True, metavar="DIR", help="folder with their vocabulary")
    add("--labelled", required=True, metavar="DIR", help="folder with TASK/train.tsv and so on")
    add("--plan", choices=PLANS, default=SCORES.name, help="(default: %(default)s)")
    add("--records", default=RECORDS, metavar="DIR", help="where the scores go (default: experiments/records)")
    args = parser.parse_args()
    records = Records(PLANS[args.plan], args.records)
    names = args.names or [os.path.splitext(os.path.basename(path))[0] for path in args.checkpoint]
    for name, path in zip(names, args.checkpoint):
        name += "-decoder" * args.decoder
        model = Encoder(path, args.data).model
        for task in MADE if args.decoder else records.comparison.tasks:
            if task not in records.read(PROBED).get(name, {}):
                loaded = load_task(os.path.join(args.labelled, task), regression=task in REGRESSION)
                scores = score(Decoder(model) if args.decoder else model, loaded)
                records.keep_probed(name, task, scores)
                print(f"{name}, {task}: {scores}", flush=True)


if __name__ == "__main__":
    errors.run(main)
