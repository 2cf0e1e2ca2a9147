"""Compares an exported folder with the hub, used as users of its head do."""

from ..base.byte_level_tokenizer import ByteLevelTokenizer
from ..base.errors import UsageError
from ..base.text_input import tokens_of
from .edge_cases import EDGE_CASES
from .export_checks import CHECKS, check_export
from .head_outputs import SampleTexts
from .tokenizer import is_known_difference, recorded_lines
from .weights import OWN_CLASSES

TEXT_COUNT = 8
SHORT_TEXT_WORDS = 12


def expected_outputs(model, kind, uses_own_classes, lines=()):
    """What the hub answers to what users of an export do.

    Args:
        model: `hub.MaeLm`
        kind: `ExportKind`
        uses_own_classes: whether the export's class is one of modeling_mae_lm.py
        lines: of text; edge cases are added where there are few
    Returns: a dict for `export_checks.check_export`, of plain values and tensors
    """
    limit = model.model.max_positions()
    samples = sample_texts(lines, limit, are_pairs=model.info.texts_per_example == 2)
    expected = {
        "auto_class": kind.auto_class,
        "trims_offsets": model.tokenizer.trims_offsets,
        "allows_left_padding": uses_own_classes,
    }
    # A byte-level BPE that is exported for lists of words gives single texts other tokens.
    if not (kind.reads_words and isinstance(model.tokenizer, ByteLevelTokenizer)):
        expected["texts"] = samples.inputs
        expected["tokens"] = [
            tokens_of(model.tokenizer, *row, limit=limit) for row in samples.inputs
        ]
    expected.update(kind.expected_outputs(model, samples))
    return expected


def sample_texts(lines, limit, are_pairs):
    """`SampleTexts` for a model that reads up to `limit` tokens."""
    usable = []
    for line in [*lines, *EDGE_CASES]:
        if line.split() and not is_known_difference(line):
            usable.append(line)
    lines = usable[:TEXT_COUNT]
    words = " ".join(lines).split()
    starts = range(0, TEXT_COUNT * SHORT_TEXT_WORDS, SHORT_TEXT_WORDS)
    short_texts = [" ".join(words[i : i + SHORT_TEXT_WORDS]) for i in starts]
    too_long = " ".join(words * (1 + limit // len(words)))
    texts = [*lines, too_long]
    if are_pairs:
        inputs = [[text, following] for text, following in zip(texts, [*texts[1:], texts[0]])]
    else:
        inputs = [[text] for text in texts]
    return SampleTexts(lines, inputs, short_texts)


def compare_with_transformers(folder, config, model, data, kind):
    """Loads an exported folder with transformers and uses it as its users do.

    Nothing is compared where transformers is not installed.

    Args:
        folder: folder of the export
        config: the contents of its config.json
        model: `hub.MaeLm`
        data: folder whose records have lines of text
        kind: `ExportKind`
    Returns: a sentence that says what was compared, or why nothing was compared
    Raises UsageError: the export answers differently
    """
    uses_own_classes = config["model_type"] == OWN_CLASSES.model_type
    try:
        import transformers

        if uses_own_classes:
            from . import modeling_mae_lm as classes
        else:
            classes = transformers
        model_class = getattr(classes, config["architectures"][0])
        # An Auto class would ask whether to run our file.
        tokenizer_class = transformers.PreTrainedTokenizerFast
    except Exception as error:  # not only ImportError: a broken installation may raise any
        reason = " ".join(str(error).split())
        return (
            f"outputs not compared: transformers cannot be imported ({reason}); pip install "
            "-c constraints.txt transformers, then export again to the same folder"
        )
    loaded = model_class.from_pretrained(folder)
    tokenizer = tokenizer_class.from_pretrained(folder)
    expected = expected_outputs(model, kind, uses_own_classes, recorded_lines(data, ["valid"]))
    results = check_export(tokenizer, loaded, expected)
    version = f"transformers {transformers.__version__}"
    faults = results["faults"]
    if faults:
        raise UsageError(
            f"{version} gives other results than the hub in {len(faults)} checks; the first: "
            f"{faults[0]}; please report this, with config.json and the version"
        )
    counts = ", ".join(f"{count} {CHECKS[key].title}" for key, count in results["counts"].items())
    return (
        f"{version} answers as the hub does ({counts}; numbers differ by "
        f"{results['largest_difference']:.1g} at most)"
    )
