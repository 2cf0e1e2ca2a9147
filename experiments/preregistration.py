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
SHARED does, it would take 0.876 times the compute; SHARED takes 0.749, MAE_LM 1.044 (flops.py, for the mean block, of
46.5 tokens).

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
from pretraining import Model, Size, Text, training_options

# IMDB's 527 held-out reviews are left out: their error would be the largest part of the mean's.
MADE = ("bigram_shift", "replaced_word")
TASKS = ("trec", "trec_fine", "rotten_tomatoes", "tweets", "nyt_editorials", "amazon_reviews", *MADE)
UNSEEN = ("sms_spam", "agreement")
FINE_TUNED_TASKS = ("trec", "rotten_tomatoes")  # the largest two with different texts: all eight would take days
CONFIDENCE = 0.95
LEARNING_RATE = 1e-3  # of arms without pilots
LEARNING_RATES = (5e-4, 1e-3, 2e-3)

ALL_MASKS, NO_MASKS = MaskSettings(mask_prob=0.3, encoder_mask_fraction=1.0), MaskSettings(mask_prob=0.3)
MLM = Model("mlm", "MLM", 0, ALL_MASKS)
MAE_LM = Model("mae_lm", "MAE-LM", 2, NO_MASKS)
SHARED = Model("shared", "shared layers", 2, NO_MASKS, shared=True)
SHARED_LONG = replace(SHARED, name="shared_long", title="shared layers, the MLM's compute")
SCRATCH = Model("scratch", "no pretraining", 0, ALL_MASKS)


@dataclass(frozen=True)
class Arm:
    """Models that differ in their seeds only.

    Args:
        model: :class:`~pretraining.Model`
        updates: total number of updates; 0 for models that keep their initial weights
        seeds: how many; 1, 2, ...
        pilots: the model whose pilots select its learning rate; None for LEARNING_RATE
    """

    model: Model
    updates: int
    seeds: int = 1
    pilots: Optional[Model] = None


@dataclass(frozen=True)
class Run:
    """One pretraining.

    Args:
        name: of its folder and its record
        model: :class:`~pretraining.Model`
        seed: of the weights, the order of the text and the masks
        updates: total number of updates, 0 for none
        lr: the learning rate; None for the one that the pilots of the model `pilots` select
    """

    name: str
    model: Model
    seed: int
    updates: int
    lr: Optional[float] = None
    pilots: Optional[Model] = None


@dataclass(frozen=True)
class Comparison:
    """A plan.

    Args:
        name: of the folder of its records
        title: of its section in a page of results
        size: of the encoders
        text: :class:`~pretraining.Text`
        arms: of :class:`Arm`, what matters most first; all first seeds are run, then all second ones
        compared: pairs of models, the first minus the second
        pilots: the models that have some; pilot_updates: of each, with a schedule of their own
        tested: whether the first of `compared` is tested
        save_updates: number of updates between checkpoints and validations
        rank_tokens, taus: held-out tokens for effective ranks, and their shares of the energy
        tasks: names of those that models are evaluated on
        few_shot_repeats: how often few-shot probes are repeated, with other training examples; 0 for none
        fine_tuned: models; what the heads of fine-tuning read is the mean of tokens
    """

    name: str
    title: str
    size: Size
    text: Text
    arms: Tuple[Arm, ...]
    compared: Tuple[Tuple[Model, Model], ...]
    pilots: Tuple[Model, ...] = ()
    pilot_updates: int = 1_000
    tested: bool = False
    save_updates: int = 500
    rank_tokens: int = 100_000
    taus: Tuple[float, ...] = (0.9, 0.99)
    tasks: Tuple[str, ...] = (*TASKS, *UNSEEN)
    few_shot_repeats: int = 0
    fine_tuned: Tuple[Model, ...] = ()

    def pilot_runs(self, model):
        """The runs that select the learning rate of a model."""
        return [Run(f"pilot-{model.name}-lr{lr:g}", model, 0, self.pilot_updates, lr) for lr in LEARNING_RATES]

    def runs(self):
        """All runs but pilots, what matters most first."""
        last = max(arm.seeds for arm in self.arms)
        return [self.run(arm, seed) for seed in range(1, last + 1) for arm in self.arms if seed <= arm.seeds]

    def run(self, arm, seed):
        lr = None if arm.pilots else LEARNING_RATE
        return Run(f"{arm.model.name}-{seed}", arm.model, seed, arm.updates, lr, arm.pilots)

    def fine_tuned_runs(self):
        """The runs whose models are fine-tuned, in the order of `fine_tuned` for each seed."""
        runs = [run for run in self.runs() if run.model in self.fine_tuned]
        return sorted(runs, key=lambda run: (run.seed, self.fine_tuned.index(run.model)))

    def options(self, run, chosen=None):
        """The options of fairseq-train for a run, except folders and devices: list of strings.

        A model without pretraining takes two updates with a learning rate of zero.

        Args:
            chosen: the learning rate that the pilots selected
        """
        lr, updates = (run.lr or chosen, run.updates) if run.updates else (0.0, 2)
        return training_options(run.model, self.size, self.text, lr, updates, self.save_updates, run.seed)


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
    pilots=(MLM, SHARED, MAE_LM),
    tested=True,
    few_shot_repeats=50,
    fine_tuned=(MLM, SHARED_LONG, SHARED, MAE_LM),
)
