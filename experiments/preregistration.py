"""Which encoder has the better features? The runs, as dataclasses, and the test: both written before the runs.

An earlier comparison, whose results are in experiments/RESULTS.md, found MAE-LM behind an MLM. A pilot of one seed then
suggested why, and a remedy, --share-decoder-layers: this plan tests the remedy on new runs.

The question. Models of one size see the same text in the same order with the same masks, 30% predicted, and start from
the same initial weights of the encoder. Does an encoder with shared decoder layers (SHARED: masks attend to tokens, and
tokens never to masks) have features that predict tasks better than an MLM's, for the same compute?

Arms, of four seeds each, each with a learning rate schedule of its own length:
    MLM           12,250 updates
    SHARED_LONG   16,360 updates, the MLM's compute in matrix products
    SHARED        12,250 updates
    MAE_LM        12,250 updates, with two decoder layers
The MLM computes every row of its last layer, as fairseq's RoBERTa does. If it computed only the predicted rows, as
SHARED does, it would take 0.876 times the compute; SHARED takes 0.749, MAE_LM 1.044 (`training_flops`, for the mean
block, of 46.5 tokens).

Pilots select the learning rate of each arm from 5e-4, 1e-3 and 2e-3, by the validation loss after 1,000 updates, with a
seed that is not used otherwise (SHARED_LONG takes SHARED's). Adam's second beta is 0.999.

Primary outcome, one number per model: the mean over TASKS, weighted equally, of the score of frozen features at the end
of pretraining. Features are the mean over tokens of one layer's output; the layer, and the strength of regularisation
of the logistic or ridge regression, are chosen inside the training folds; all labelled examples, 5 folds, the same
for all models. A task's score is the accuracy in percent, or 100 times Pearson's correlation where the task predicts
a value.

Primary comparison: SHARED_LONG minus MLM. The unit is the seed of pretraining, and differences are paired by seed and
example. The two-sided interval at the level CONFIDENCE is `crossed_interval` of recipes/evaluation, whose unit is the
seed. "Better" or "worse" is written only if it excludes 0; otherwise the interval itself is the result. There is one
such test, after all seeds, and no early stopping on what the scores say.

Everything else is secondary and reported without a claim: SHARED minus MLM at equal updates, MAE_LM minus MLM, and
SHARED minus MAE_LM; for each of these and for the primary comparison the mean without the two synthetic probes (MADE),
the last layer, few labels, and fine-tuning on the mean of tokens for FINE_TUNED_TASKS, a run for each fold. Models of
the same seeds without pretraining (SCRATCH) show what pretraining adds.

UNSEEN tasks were not looked at when shared decoder layers were designed, chosen before the runs, and are reported
whatever they say: text messages (sms_spam), and minimal pairs of agreement that a rule makes from held-out reviews, the
two sentences of a pair in one fold. They are in no mean.
"""

from dataclasses import dataclass, replace
from typing import Optional, Tuple

from maelm_fairseq.masking import MaskSettings
from pretraining import Model, Size, Text, options_of

# IMDB's 527 held-out reviews are left out: their error would be the largest part of the mean's.
MADE = ("bigram_shift", "replaced_word")
TASKS = ("trec", "trec_fine", "rotten_tomatoes", "tweets", "nyt_editorials", "amazon_reviews", *MADE)
UNSEEN = ("sms_spam", "agreement")
FINE_TUNED_TASKS = ("trec", "rotten_tomatoes")  # the largest two with different texts: all eight would take days
CONFIDENCE = 0.95
LEARNING_RATE = 1e-3  # of arms without pilots
LEARNING_RATES = (5e-4, 1e-3, 2e-3)
TAU = "0.9"  # share of the energy that effective ranks count

ALL_MASKS, NO_MASKS = MaskSettings(mask_prob=0.3, encoder_mask_fraction=1.0), MaskSettings(mask_prob=0.3)
MLM = Model("mlm", "MLM", 0, ALL_MASKS)
MAE_LM = Model("mae_lm", "MAE-LM", 2, NO_MASKS)
SHARED = Model("shared", "shared layers", 2, NO_MASKS, shared=True)
SHARED_LONG = replace(SHARED, name="shared_long", title="shared layers, the MLM's compute")
SCRATCH = Model("scratch", "no pretraining", 0, ALL_MASKS)


@dataclass(frozen=True)
class Arm:
    """Models that differ in their seeds only."""

    model: Model
    updates: int  # in total; 0 for models that keep their initial weights
    seeds: int = 1  # how many; 1, 2, ...
    pilots: Optional[Model] = None  # the model whose pilots select the learning rate; None for LEARNING_RATE


@dataclass(frozen=True)
class Run:
    """One pretraining."""

    name: str  # of its folder and its record
    model: Model
    seed: int  # of the weights, the order of the text and the masks
    updates: int  # in total; 0 for none
    lr: Optional[float] = None  # of a pilot
    pilots: Optional[Model] = None  # as for Arm


@dataclass(frozen=True)
class Comparison:
    """A plan."""

    name: str  # of the folder of its records
    title: str  # of its section in a page of results
    size: Size
    text: Text
    arms: Tuple[Arm, ...]  # what matters most first; all first seeds are run, then all second ones
    compared: Tuple[Tuple[Model, Model], ...]  # pairs, the first minus the second
    pilot_updates: int = 1_000  # of each pilot, with a schedule of their own
    tested: bool = False  # whether the first of `compared` is tested
    save_updates: int = 500  # between checkpoints and validations
    rank_tokens: int = 100_000  # held-out tokens for effective ranks
    tasks: Tuple[str, ...] = (*TASKS, *UNSEEN)
    few_shot_repeats: int = 0  # of few-shot probes, with other training examples; 0 for none
    fine_tuned: Tuple[Model, ...] = ()  # what the heads of fine-tuning read is the mean of tokens

    def pilots(self):
        """The models that have pilots."""
        return list({arm.pilots.name: arm.pilots for arm in self.arms if arm.pilots}.values())

    def pilot_runs(self, model):
        """The runs that select the learning rate of a model."""
        return [Run(f"pilot-{model.name}-lr{lr:g}", model, 0, self.pilot_updates, lr) for lr in LEARNING_RATES]

    def runs(self):
        """All runs but pilots, what matters most first."""
        return [
            Run(f"{arm.model.name}-{seed}", arm.model, seed, arm.updates, pilots=arm.pilots)
            for seed in range(1, 1 + max(arm.seeds for arm in self.arms))
            for arm in self.arms
            if seed <= arm.seeds
        ]

    def fine_tuned_runs(self):
        """The runs whose models are fine-tuned."""
        return [run for run in self.runs() if run.model in self.fine_tuned]

    def options(self, run, chosen=LEARNING_RATE):
        """The options of fairseq-train for a run, except folders and devices: list of strings.

        The learning rate rises for 6% of the updates, then falls linearly to zero. A model without pretraining takes
        two updates with a learning rate of zero.

        Args:
            chosen: the learning rate of a run that has none of its own
        """
        lr, updates = (run.lr or chosen, run.updates) if run.updates else (0.0, 2)
        text, every = self.text, min(self.save_updates, updates)
        options = [
            *["--task", "mae_lm", "--criterion", "mae_lm", "--arch", "mae_lm_tiny", *options_of(self.size)],
            *["--dropout", 0, "--attention-dropout", 0, "--max-positions", text.tokens_per_sample],
            *["--tokens-per-sample", text.tokens_per_sample, "--batch-size", text.batch_size],
            *["--batch-size-valid", 64, "--num-workers", 0, "--bf16-autocast", *run.model.options()],
            *["--optimizer", "torch_adamw", "--adam-betas", "(0.9, 0.999)", "--adam-eps", 1e-6],
            *["--weight-decay", 0.01, "--clip-norm", 2.0, "--lr-scheduler", "polynomial_decay"],
            *["--lr", lr, "--warmup-updates", max(1, int(0.06 * updates)), "--seed", run.seed],
            *["--total-num-update", updates, "--max-update", updates, "--distributed-world-size", 1],
            *["--log-format", "json", "--log-interval", max(1, min(50, every)), "--save-interval-updates", every],
            *["--keep-interval-updates", 1, "--no-epoch-checkpoints"],
        ]
        return list(map(str, options))


SCORES = Comparison(
    name="width256",
    title="Which encoder has the better features?",
    size=Size(encoder_layers=4, encoder_embed_dim=256, encoder_ffn_embed_dim=1024, encoder_attention_heads=4),
    text=Text(tokens_per_sample=64, batch_size=32),
    arms=(
        Arm(MLM, 12_250, 4, pilots=MLM),
        Arm(SHARED_LONG, 16_360, 4, pilots=SHARED),
        Arm(SHARED, 12_250, 4, pilots=SHARED),
        Arm(MAE_LM, 12_250, 4, pilots=MAE_LM),
        Arm(SCRATCH, 0, 4),
    ),
    compared=(
        (SHARED_LONG, MLM),
        (SHARED, MLM),
        (MAE_LM, MLM),
        (SHARED, MAE_LM),
        (SHARED_LONG, SCRATCH),
        (MLM, SCRATCH),
    ),
    tested=True,
    few_shot_repeats=50,
    fine_tuned=(MLM, SHARED_LONG, SHARED, MAE_LM),
)
