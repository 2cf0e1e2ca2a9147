"""What the miniature reproduction runs: models, sizes, text, variations, tasks and seeds, in one dataclass.

run.py turns it into jobs, report.py into tables. A new variant is a :func:`dataclasses.replace` of MINIATURE.
"""

from dataclasses import dataclass, field, replace
from typing import Tuple, Union

from evaluation.tasks import PRIMARY
from maelm_fairseq.masking import MaskSettings
from pretraining import Model, Optimization, Size, Text, options_of, training_options


@dataclass(frozen=True)
class Variations:
    """Changes of MAE-LM, one at a time, besides leaving out the relative position bias."""

    encoder_mask_fractions: Tuple[float, ...]  # shares of the masks that the encoder sees
    decoder_layers: Tuple[int, ...]
    mask_probs: Tuple[float, ...]


@dataclass(frozen=True)
class Finetuning:
    """How the models are fine-tuned whose ranks are measured again."""

    batch_size: int = 32
    lr: float = 5e-4
    warmup_ratio: float = 0.1
    epochs: int = 3


MLM = Model("mlm", "MLM", 0, MaskSettings(mask_prob=0.3, encoder_mask_fraction=1.0))
MAE_LM = Model("mae_lm", "MAE-LM", 2, MaskSettings(mask_prob=0.3))
FRACTION, DECODER, MASK_PROB = "fraction", "decoder", "mask-prob"
TITLES = {
    FRACTION: "share of masks in the encoder: {:g}",
    DECODER: "decoder layers: {:g}",
    MASK_PROB: "mask probability: {:g}",
}
COMPARISON, NO_RELATIVE_BIAS = "comparison", "no-relative-bias"


@dataclass(frozen=True)
class Run:
    """One pretraining.

    Args:
        experiment: the :class:`Experiment` that it belongs to
        kind: COMPARISON, FRACTION, DECODER, MASK_PROB or NO_RELATIVE_BIAS
        value: the varied setting; None for COMPARISON and NO_RELATIVE_BIAS
        seed: of the weights, the order of the text and the masks
        model: what is pretrained
    """

    experiment: "Experiment" = field(repr=False)
    kind: str
    value: Union[int, float, None]
    seed: int
    model: Model

    @property
    def name(self):
        """The name of its folders."""
        if self.kind == COMPARISON:
            return f"{self.model.name}-{self.seed}"
        return self.kind if self.value is None else f"{self.kind}-{self.value:g}"

    @property
    def finetuned_name(self):
        """The name of what is measured after fine-tuning."""
        return f"{self.name}-finetuned"

    def part_name(self, number):
        """The name of the model after `number` of the experiment's parts."""
        return f"{self.name}-part{number}"

    @property
    def title(self):
        """What tables call it."""
        if self.kind == COMPARISON:
            return self.model.title
        return "no relative position bias" if self.value is None else TITLES[self.kind].format(self.value)

    def options(self, updates):
        """Its fairseq-train options except folders and devices, as a list of strings.

        Args:
            updates: total number of updates
        """
        trial = self.experiment
        part = updates // trial.parts
        options = training_options(self.model, trial.size, trial.text, trial.optimization, updates, part, self.seed)
        if self.kind == COMPARISON:
            options += ["--effective-rank-tokens", str(trial.rank_tokens // 5)]
        return options


@dataclass(frozen=True)
class Experiment:
    """Everything that is run.

    Args:
        models: what is compared: the reference, then the model that `variations` change
        tasks: names of those that models are evaluated on, and fine-tuned on the first of
        seeds: of pretraining, for each model of the comparison
        rank_tokens: held-out tokens on which ranks are measured
        parts: checkpoints of a run at equal distances, the last at its end
        speed_updates: of a run that measures the speed
    """

    size: Size
    text: Text
    variations: Variations
    rank_tokens: int
    models: Tuple[Model, Model] = (MLM, MAE_LM)
    optimization: Optimization = Optimization()
    tasks: Tuple[str, ...] = tuple(source.name for source in PRIMARY)
    finetuning: Finetuning = Finetuning()
    seeds: int = 2
    parts: int = 4
    speed_updates: int = 60

    def compared(self):
        """The runs of the comparison, by seed."""
        return [Run(self, COMPARISON, None, 1 + k, model) for k in range(self.seeds) for model in self.models]

    def compared_once(self):
        """Those of the first seed."""
        return [run for run in self.compared() if run.seed == 1]

    def varied(self):
        """The runs of the variations, each of the first seed."""
        base = self.models[1]
        changed = [
            (FRACTION, value, replace(base, masks=replace(base.masks, encoder_mask_fraction=value)))
            for value in self.variations.encoder_mask_fractions
        ]
        changed += [(DECODER, value, replace(base, decoder_layers=value)) for value in self.variations.decoder_layers]
        changed += [
            (MASK_PROB, value, replace(base, masks=replace(base.masks, mask_prob=value)))
            for value in self.variations.mask_probs
        ]
        changed.append((NO_RELATIVE_BIAS, None, replace(base, relative_position_bias=False)))
        return [Run(self, kind, value, 1, model) for kind, value, model in changed]

    def baseline_title(self):
        """The values in the comparison of the settings that the variations change."""
        base = self.models[1]
        values = {
            FRACTION: base.masks.encoder_mask_fraction,
            DECODER: base.decoder_layers,
            MASK_PROB: base.masks.mask_prob,
        }
        return ", ".join(TITLES[kind].format(value) for kind, value in values.items())

    def part_updates(self, updates):
        """{number of a part: updates at its end}, without the last part, whose end is the end of the run."""
        return {number: updates // self.parts * number for number in range(1, self.parts)}

    def finetune_options(self):
        """Options of recipes/finetune_glue.py except folders, as a list of strings."""
        return list(map(str, ["--task", self.tasks[0], "--seeds", 1, *options_of(self.finetuning)]))


MINIATURE = Experiment(
    size=Size(encoder_layers=4, encoder_embed_dim=256, encoder_ffn_embed_dim=1024, encoder_attention_heads=4),
    text=Text(tokens_per_sample=64, batch_size=32),
    variations=Variations(encoder_mask_fractions=(0.25, 0.5, 0.75, 1.0), decoder_layers=(1, 4), mask_probs=(0.15, 0.5)),
    rank_tokens=100_000,
)
# Every kind of job, as small as can be.
TINY = replace(
    MINIATURE,
    size=Size(encoder_layers=2, encoder_embed_dim=32, encoder_ffn_embed_dim=64, encoder_attention_heads=2),
    text=Text(tokens_per_sample=32, batch_size=8),
    variations=Variations(encoder_mask_fractions=(0.5,), decoder_layers=(1,), mask_probs=(0.5,)),
    rank_tokens=2_000,
    parts=2,
)
