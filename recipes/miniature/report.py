"""Tables, figures and the summary that recipes/reproduce.sh ends with."""

import datetime
import os
import platform
import statistics

import torch

import figures
from evaluation.report import interval
from maelm_fairseq import effective_rank
from maelm_fairseq.errors import UsageError
from maelm_fairseq.files import atomic_write
from results import BASELINES
from results_page import put_section

HEADING = "## The paper in miniature"


def shown(values):
    """The median, with the lowest and highest where there are several."""
    text = f"{statistics.median(values):.2f}"
    return text if len(values) == 1 else f"{text} ({min(values):.2f} to {max(values):.2f})"


def row(*cells):
    """A row of a Markdown table."""
    return "|" + "|".join(f" {cell} " if cell != "" else " " for cell in cells) + "|"


def header(*cells):
    """The first two rows of a Markdown table."""
    return [row(*cells), "|" + "---|" * len(cells)]


class Report:
    """The results as tables and text.

    Args:
        experiment: :class:`~experiment.Experiment`
        results: :class:`~results.Results`
        left: number of jobs that are not done
    Raises:
        UsageError: the comparison is not complete: pretraining, ranks and scores
    """

    def __init__(self, experiment, results, left=0):
        self.experiment, self.results, self.left = experiment, results, left
        self.compared, self.compared_once = experiment.compared(), experiment.compared_once()
        measured = [run for run in experiment.varied() if results.is_evaluated(run.name)]
        self.varied = [run for run in measured if run.name in results.rank_rows]
        self.last = experiment.size.encoder_layers  # the number of the last layer
        names = [run.name for run in self.compared]
        if not all(name in results.rank_rows and results.is_evaluated(name) for name in names):
            raise UsageError(
                f"{results.path()}: nothing to report yet, expected the ranks and scores of {', '.join(names)}; run "
                "the command without --report first"
            )
        self.first_task, self.tables = experiment.tasks[0], results.tables
        self.updates = results.last_validation(self.compared_once[1].name)["update"]
        self.has_finetuned_ranks = all(run.finetuned_name in results.rank_rows for run in self.compared_once)

    def of_model(self, model):
        """The runs of a model of the comparison."""
        return [run for run in self.compared if run.model == model]

    # Tables

    def comparison(self):
        reference, ours = self.experiment.models
        lines = header("", reference.title, ours.title)
        for title, key in [("validation loss, bits a predicted token", "loss"), ("seconds of training", "seconds")]:
            values = [
                [self.results.last_validation(run.name)[key] for run in self.of_model(model)]
                for model in (reference, ours)
            ]
            lines.append(row(title, *map(shown, values)))
        return lines

    def scores(self):
        """The scores of the compared models, and of what needs no pretraining."""
        arms = {model.title: list(self.tables.arm(model.name).values()) for model in self.experiment.models}
        return self.tables.arms({**arms, **{title: [name] for name, title in BASELINES.items()}})

    def rank_table(self, runs, name_of):
        """The ranks of the four families by layer.

        Args:
            runs: of the comparison
            name_of: function of a run -> the name of its ranks
        """
        layers = range(self.last + 1)
        lines = header("model, seed", "tokens", *(f"layer {layer}" for layer in layers))
        for run in sorted(runs, key=lambda run: self.experiment.models.index(run.model)):
            title, name = f"{run.title}, {run.seed}", name_of(run)
            for family, label in effective_rank.FAMILIES.items():
                lines.append(row(title, label, *(self.results.ranks(name)[family, layer] for layer in layers)))
            dimensions = (f"{value:.1f}" for value in self.results.mask_dimensions(name))
            lines.append(row(title, "dimensions of [MASK] outside real tokens'", *dimensions))
        return lines

    def variation_table(self):
        base = self.compared_once[1]
        lines = header(
            f"{base.title}, seed {base.seed}, with",
            *["loss, bits", "seconds", "rank, without [MASK]", "rank gap", "score"],
        )
        titles = [f"({self.compared_once[0].title})", self.experiment.baseline_title()]
        for run, title in zip([*self.compared_once, *self.varied], titles + [run.title for run in self.varied]):
            last, rank = self.results.last_validation(run.name), self.results.ranks(run.name)["without_mask", self.last]
            cells = f"{last['loss']:.3f}", f"{last['seconds']:.0f}", rank, f"{self.results.gap(run.name, self.last):+d}"
            score = "{:.2f} ± {:.2f}".format(*self.results.score(run.name))
            lines.append(row(title, *cells, score))
        return lines

    def claims(self):
        """Each claim of the paper, what was measured, and whether that shows it."""
        reference, ours = self.experiment.models
        layers, results = range(self.last + 1), self.results
        lines = header("claim", "measured", "shown")

        def add(claim, measured, holds):
            lines.append(row(claim, measured, holds if isinstance(holds, str) else "yes" if holds else "no"))

        rises = [[results.ranks(run.name)["mask_tokens", k] for k in layers] for run in self.of_model(reference)]
        add(
            "MLM: the rank of [MASK] tokens rises with depth (Lemma 2.1)",
            f"layers 0 (embeddings) to {self.last}: " + ", ".join(" ".join(map(str, ranks)) for ranks in rises),
            all(ranks[0] < ranks[-1] and ranks[1:] == sorted(ranks[1:]) for ranks in rises),
        )
        gaps = [[results.gap(run.name, layer) for layer in layers] for run in self.of_model(reference)]
        by_layer = "gap by layer " + "; ".join(" ".join(f"{gap:+d}" for gap in each) for each in gaps)
        add("MLM: inputs without [MASK] have a lower rank than with it", by_layer, all(each[-1] > 0 for each in gaps))
        add(
            "MLM: that gap is largest in deep layers",
            by_layer,
            all(max(each) == max(each[len(each) // 2 :]) and each[-1] > each[0] for each in gaps),
        )
        own = [results.mask_dimensions(run.name)[-1] for run in self.of_model(reference)]
        add(
            "MLM: [MASK] has dimensions that real tokens do not use (Theorem 2.2)",
            f"at layer {self.last}: MLM " + ", ".join(f"{value:.1f}" for value in own),
            all(value >= 1 for value in own),
        )
        names = [[run.name for run in self.of_model(model)] for model in (reference, ours)]
        self.claim_more_dimensions(add, "after pretraining", names)
        if self.has_finetuned_ranks:
            names = [[run.finetuned_name] for run in self.compared_once]
            self.claim_more_dimensions(add, f"after fine-tuning on {self.first_task}", names)
        found = interval(self.tables.paired(ours.name, reference.name))
        few = "not decided: one seed" if self.experiment.seeds == 1 else None
        measured = f"{found.estimate:+.2f} ({found.low:+.2f} to {found.high:+.2f})"
        add("MAE-LM scores higher: frozen features, mean over tasks", measured, few or found.low > 0)
        return lines

    def claim_more_dimensions(self, add, when, names):
        """Adds the claims on MAE-LM's ranks.

        Args:
            add: function of claim, measurement and verdict
            when: after which training, in words
            names: of the ranks of the reference, and of MAE-LM's; a name for each seed
        """
        layers, titles = range(1, self.last + 1), [model.title for model in self.experiment.models]
        gaps = [[self.results.gap(name, self.last) for name in each] for each in names]
        by_model = "; ".join(f"{title} {' '.join(f'{gap:+d}' for gap in each)}" for title, each in zip(titles, gaps))
        closes = max(map(abs, gaps[1])) < min(gaps[0])
        add(f"MAE-LM: the gap closes, {when}", f"at layer {self.last}: {by_model}", closes)
        ranks = [[[self.results.ranks(name)["without_mask", k] for k in layers] for name in each] for each in names]
        by_model = "; ".join(
            f"{title} {', '.join(' '.join(map(str, seed)) for seed in each)}" for title, each in zip(titles, ranks)
        )
        higher = [k for k, mlm, mae_lm in zip(layers, zip(*ranks[0]), zip(*ranks[1])) if min(mae_lm) > max(mlm)]
        some = f"only at layers {', '.join(map(str, higher))}" if higher else "no"
        add(
            f"MAE-LM represents text without [MASK] in more dimensions in deep layers, {when}",
            f"layers 1 to {self.last}: {by_model}",
            set(layers[self.last // 2 :]) <= set(higher) or some,
        )

    # The summary

    def figures(self):
        """Those of figures.FIGURES that are drawn: {file: caption}."""
        drawn = figures.FIGURES.items()
        return {name: text for name, text in drawn if name != "ranks-finetuned.png" or self.has_finetuned_ranks}

    def setting(self):
        """What was measured and how, in words."""
        experiment, ours = self.experiment, self.experiment.models[1]
        size, text = experiment.size, experiment.text
        tokens = int(self.results.rank_rows[self.compared[0].name][0]["tokens"])
        return (
            f"Encoders of {size.encoder_layers} layers, width {size.encoder_embed_dim}; {self.updates:,} updates of "
            f"{text.batch_size} sequences of {text.tokens_per_sample} tokens, {ours.masks.mask_prob:.0%} of them "
            "predicted. The MLM is the same code with all masks in the encoder and no decoder; MAE-LM has "
            f"{ours.decoder_layers} decoder layers. Ranks are measured on {tokens:,} held-out tokens, 15% of them "
            "[MASK] in inputs with [MASK], at tau = 0.9. Scores are of frozen features (the mean of tokens; layer and "
            "regularisation chosen inside the training folds of a 5-fold cross-validation over all labelled examples): "
            "accuracy in percent, or 100 times Pearson's correlation. A single model has the mean over tasks, "
            "with its standard error over examples."
        )

    def summary(self, command, jobs, folder="."):
        """The section of a Markdown file.

        Args:
            command: that printed it
            jobs: number of jobs that ran at the same time
            folder: of the figures, relative to the file
        """
        machine = f"{platform.machine()}, {os.cpu_count()} cores"
        if torch.cuda.is_available():
            machine = torch.cuda.get_device_name()
        reference, ours = self.experiment.models
        finetuned = []
        if self.has_finetuned_ranks:
            table = self.rank_table(self.compared_once, lambda run: run.finetuned_name)
            finetuned = [f"After fine-tuning on {self.first_task} (Figure 5b):", "", *table, ""]
        lines = [
            HEADING,
            f"Printed on {datetime.date.today()} ({machine}, Python {platform.python_version()}, torch "
            f"{torch.__version__}, {jobs} jobs at a time) by",
            *["```", command, "```"],
            self.setting(),
            *["", *self.claims(), ""],
            *(f"![{text}]({folder}/{name})" for name, text in self.figures().items()),
            *["", *self.comparison(), ""],
            *["Scores, and their differences with intervals:", "", self.scores()],
            self.tables.comparison(ours.name, reference.name),
            *["Ranks by layer (Figures 1 and 5a of the paper):", ""],
            *[*self.rank_table(self.compared, lambda run: run.name), ""],
            *finetuned,
            *["Variations (Figure 4, ablations); the gap is the last layer's rank with [MASK] minus that without:", ""],
            *[*self.variation_table(), ""],
            *([f"{self.left} jobs have not been run yet.", ""] if self.left else []),
        ]
        return "\n".join(lines)

    def write(self, folder, command, jobs):
        """Writes figures, tables and summary into a folder."""
        os.makedirs(folder, exist_ok=True)
        figures.draw(folder, self)
        with atomic_write(os.path.join(folder, "summary.md")) as stream:
            stream.write(self.summary(command, jobs))
        ranks = [dict(run=name, **each) for name, rows in self.results.rank_rows.items() for each in rows]
        scores = [
            dict(run=name, task=task, score=score)
            for name in self.tables.results
            for task, score in self.results.scores(name).items()
        ]
        effective_rank.write_csv(os.path.join(folder, "ranks.csv"), ranks)
        effective_rank.write_csv(os.path.join(folder, "scores.csv"), scores)
        print("\n".join(self.claims()))
        print(f"written: summary.md, ranks.csv, scores.csv, {', '.join(self.figures())} in {folder}")

    def put_into(self, path, folder, command, jobs):
        """Puts the summary into a Markdown file, in place of its section of that heading, and the figures beside it.

        Args:
            path: of the file
            folder: that has the figures
            command, jobs: as for :meth:`summary`
        """
        figures = {os.path.join(folder, name): os.path.join("miniature", name) for name in self.figures()}
        put_section(path, self.summary(command, jobs, "miniature"), figures)
