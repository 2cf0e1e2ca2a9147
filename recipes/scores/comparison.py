"""Does MAE-LM score higher than an MLM? What is run, in a dataclass, and what is tested: written before the runs.

The question. Models of one size, for equal updates on the same text, in the same order and with the same masks, from
the same initial weights of the encoder: does an encoder that never sees [MASK] (MAE-LM) have features from which
tasks are predicted better than from an MLM's?

Primary outcome, one number a model: the mean over TASKS, weighted equally, of the score of frozen features at the end
of pretraining. Features are the mean over tokens of one layer's output; the layer, and the strength of regularisation
of the logistic or ridge regression, are chosen inside the training folds; all labelled examples, 5 folds, the same
for all models. A task's score is the accuracy in percent, or 100 times Pearson's correlation where the task predicts
a value.

Primary comparison: MAE-LM minus MLM at width 256. The unit is the seed of pretraining, and differences are paired by
seed and example. The two-sided interval at the level CONFIDENCE is `crossed_interval` of recipes/evaluation, whose
unit is the seed. "Better" or "worse" is written only if it excludes 0; otherwise the interval itself is the result.
There is one such test, at the end of all seeds, and no stopping before for what the scores say.

Everything else is secondary and is reported without a claim: MAE-LM and the MLM against CONTROL (the MLM with the same
decoder: whether a difference comes from masks that the encoder does not see, or from prediction layers that moved
into a decoder); <s>, the last layer, the best layer in hindsight, few labels, log-loss; fine-tuning on
FINE_TUNED_TASKS, a run for each fold; scores at equal arithmetic and at equal loss; the encoders without pretraining
(SCRATCH, with the initial weights of the other models of its seed); and all of it but fine-tuning at width 128, with
two seeds (NARROW), where the theory expects the lost dimensions to weigh more.

The learning rate and Adam's second beta are those of the pilot that ends with the lowest validation loss. The pilots
are MLMs, of a seed that is not used otherwise: nothing is tuned for MAE-LM. NARROW takes over what they decided.

Explorations were added when the results of two seeds were known (MAE-LM behind the MLM), to look for what is in
MAE-LM's way, and decide nothing above: pilots of MAE-LM, which show whether its own learning rate and second beta would
have been others; and for one seed each, MAE-LM with the paper's four decoder layers: without a relative position bias,
as in the paper, whose decoder then cannot tell neighbours as easily (PAPER_DECODER), and with it (DEEPER).

Gate. When the MLM and MAE-LM of the first seed are trained, the better of both must reach GATE_ROTTEN_TOMATOES with
its best layer on Rotten Tomatoes, or exceed SCRATCH by GATE_TREC points on TREC. Otherwise pretraining teaches too
little to compare anything: the other runs wait until the reason is found.
"""

from dataclasses import dataclass, replace
from typing import Optional, Tuple

from maelm_fairseq.masking import MaskSettings
from pretraining import Model, Optimization, Size, Text, training_options

# IMDB's 527 held-out reviews are left out: their error would be the largest part of the mean's.
TASKS = (
    *("trec", "trec_fine", "rotten_tomatoes", "tweets", "nyt_editorials", "amazon_reviews"),
    *("bigram_shift", "replaced_word"),
)
FINE_TUNED_TASKS = ("trec", "rotten_tomatoes")  # the largest two with different texts: all eight would take days
CONFIDENCE = 0.95
GATE_ROTTEN_TOMATOES, GATE_TREC = 70.0, 2.0

ALL_MASKS = MaskSettings(mask_prob=0.3, encoder_mask_fraction=1.0)
MLM = Model("mlm", "MLM", 0, ALL_MASKS)
MAE_LM = Model("mae_lm", "MAE-LM", 2, MaskSettings(mask_prob=0.3))
CONTROL = Model("mlm_decoder", "MLM with decoder", 2, ALL_MASKS)
DEEPER = Model("mae_lm_decoder4", "MAE-LM, 4 decoder layers", 4, MaskSettings(mask_prob=0.3))
PAPER_DECODER = replace(
    DEEPER, name="mae_lm_paper_decoder", title="MAE-LM, the paper's decoder: 4 layers, no bias", decoder_bias=False
)
SCRATCH = Model("scratch", "no pretraining", 0, ALL_MASKS)
SCRATCH_PLAIN = Model("scratch_plain", "no pretraining, all heads as in BERT", 0, ALL_MASKS, local_heads=False)


@dataclass(frozen=True)
class Run:
    """One pretraining.

    Args:
        name: of its folder
        model: :class:`~pretraining.Model`
        size: :class:`~pretraining.Size`
        seed: of the weights, the order of the text and the masks
        updates: total number of updates
        part: number of updates between checkpoints
        optimization: :class:`~pretraining.Optimization`; None for what the pilots decide
    """

    name: str
    model: Model
    size: Size
    seed: int
    updates: int
    part: int
    optimization: Optional[Optimization] = None

    def options(self, text, chosen=None):
        """Its options of fairseq-train, except folders and devices: list of strings.

        Args:
            text: :class:`~pretraining.Text`
            chosen: what the pilots decided
        """
        optimization = self.optimization or chosen
        options = training_options(self.model, self.size, text, optimization, self.updates, self.part, self.seed)
        return options + ["--validate-interval-updates", str(max(1, self.part // 5))]


@dataclass(frozen=True)
class Comparison:
    """Everything that is run.

    Args:
        size: of the encoders
        text: :class:`~pretraining.Text`
        optimization: of all runs, as far as no pilots decide it
        updates, pilot_updates: of a run and of a pilot, each with a schedule of its own
        pilot_lrs, pilot_second_betas: which are combined; empty for no pilots
        seeds: of the MLM, MAE-LM and SCRATCH; 1, 2, ...
        fewer_seeds: of CONTROL and SCRATCH_PLAIN
        parts: checkpoints of a run at equal distances, the last at its end
        kept_parts: those that are kept, and scored
        rank_tokens, taus: held-out tokens for effective ranks, and their shares of the energy
        tasks: names of those that models are evaluated on
        draws: of the few-shot probes
        title: of the section in a page of results
        prefix: of the names of its figures beside that page
        tested: whether its difference between MAE-LM and the MLM is the one that is tested
        fine_tuned: what the heads of fine-tuning read: `<s>`, or the mean of the other tokens
        fine_tuned_tasks: names of those that models are fine-tuned on
    """

    size: Size
    text: Text
    updates: int
    pilot_updates: int
    rank_tokens: int
    optimization: Optimization = Optimization(warmup_ratio=0.06)
    pilot_lrs: Tuple[float, ...] = (1e-3, 2e-3)
    pilot_second_betas: Tuple[float, ...] = (0.98, 0.999)
    seeds: int = 4
    fewer_seeds: int = 2
    parts: int = 7
    kept_parts: Tuple[int, ...] = (1, 2, 4, 7)
    taus: Tuple[float, ...] = (0.9, 0.99)
    tasks: Tuple[str, ...] = TASKS
    draws: int = 50
    title: str = "Does MAE-LM score higher?"
    prefix: str = ""
    tested: bool = True
    fine_tuned: Tuple[str, ...] = ("first", "mean")
    fine_tuned_tasks: Tuple[str, ...] = FINE_TUNED_TASKS

    def pilots(self):
        """The runs that decide the optimization."""
        return self._pilots(MLM, "pilot")

    def explored_pilots(self):
        """The same of MAE-LM, which decide nothing; in the same order."""
        return self._pilots(MAE_LM, f"pilot-{MAE_LM.name}")

    def explored(self):
        """Further runs that decide nothing."""
        return [self._run(PAPER_DECODER, 1), self._run(DEEPER, 1)]

    def _pilots(self, model, prefix):
        runs = []
        for lr in self.pilot_lrs:
            for beta in self.pilot_second_betas:
                optimization = replace(self.optimization, lr=lr, second_beta=beta)
                name, updates = f"{prefix}-lr{lr:g}-beta{beta:g}", self.pilot_updates
                runs.append(Run(name, model, self.size, 0, updates, updates, optimization))
        return runs

    def gate(self):
        """The runs that the gate looks at: MLM and MAE-LM of the first seed."""
        return self._pair(1)

    def compared(self):
        """The runs of the primary comparison, and the first of CONTROL, after those of the gate."""
        return [self._run(CONTROL, 1), *(run for seed in range(2, self.seeds + 1) for run in self._pair(seed))]

    def further(self):
        """The other runs of CONTROL."""
        return [self._run(CONTROL, seed) for seed in range(2, self.fewer_seeds + 1)]

    def pretrained(self):
        """All runs but pilots and explorations, what matters most first."""
        return [*self.gate(), *self.compared(), *self.further()]

    def untrained(self):
        """The runs whose models keep their initial weights: two updates with a learning rate of zero."""
        still = replace(self.optimization, lr=0.0)
        seeds = [(SCRATCH, self.seeds), (SCRATCH_PLAIN, self.fewer_seeds)]
        return [
            Run(f"{model.name}-{seed}", model, self.size, seed, 2, 2, still)
            for model, count in seeds
            for seed in range(1, count + 1)
        ]

    def finetuned(self):
        """The runs whose final models are fine-tuned: MLM and MAE-LM of all seeds, then one of each other arm."""
        if not self.fine_tuned:
            return []
        pairs = [run for seed in range(1, self.seeds + 1) for run in self._pair(seed)]
        return [*pairs, self._run(CONTROL, 1), *(run for run in self.untrained() if run.seed == 1)]

    def _pair(self, seed):
        return [self._run(model, seed) for model in (MLM, MAE_LM)]

    def _run(self, model, seed):
        optimization = None if self.pilots() else self.optimization
        part = self.updates // self.parts
        return Run(f"{model.name}-{seed}", model, self.size, seed, self.updates, part, optimization)

    def kept_updates(self, run):
        """The numbers of updates whose checkpoints are kept."""
        return [run.part * part for part in self.kept_parts] if run.updates == self.updates else []

    def final(self, run):
        """The number of updates of a run's final model that count: 0 without pretraining."""
        return 0 if run.optimization and not run.optimization.lr else run.updates


SCORES = Comparison(
    size=Size(encoder_layers=4, encoder_embed_dim=256, encoder_ffn_embed_dim=1024, encoder_attention_heads=4),
    text=Text(tokens_per_sample=64, batch_size=32),
    updates=12_250,
    pilot_updates=1_000,
    rank_tokens=100_000,
)
NARROW = replace(
    SCORES,
    size=Size(encoder_layers=4, encoder_embed_dim=128, encoder_ffn_embed_dim=512, encoder_attention_heads=4),
    optimization=Optimization(lr=1e-3, warmup_ratio=0.06, second_beta=0.999),  # what the pilots of SCORES decided
    pilot_lrs=(),
    seeds=2,
    title="Does MAE-LM score higher at width 128?",
    prefix="width128-",
    tested=False,
    fine_tuned=(),
)
WIDTHS = {each.size.encoder_embed_dim: each for each in (SCORES, NARROW)}
# Every kind of job, as small as can be.
TINY = replace(
    SCORES,
    size=Size(encoder_layers=2, encoder_embed_dim=32, encoder_ffn_embed_dim=64, encoder_attention_heads=4),
    text=Text(tokens_per_sample=32, batch_size=8, vocab_size=500),
    updates=14,
    pilot_updates=2,
    rank_tokens=2_000,
    pilot_second_betas=(0.98,),
    seeds=2,
    fewer_seeds=1,
    kept_parts=(3, 7),
    tasks=("trec", "rotten_tomatoes"),
    draws=2,
    fine_tuned=(),
)
