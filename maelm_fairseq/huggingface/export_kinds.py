"""The kinds of exports: what a model becomes in transformers, by its head.

A new head is a new `ExportKind` here. What is computed with it is in head_outputs.py,
export_checks.py and modeling_mae_lm.py.
"""

from dataclasses import dataclass, field
from typing import Callable, Dict, Tuple

from ..base.errors import UsageError
from ..heads import HEAD_OF_POOLING, SpanHead, TokenClassificationHead
from . import head_outputs


@dataclass(frozen=True)
class ExportKind:
    """All that is particular to the exports with one kind of head."""

    # The class in transformers: RobertaForMaskedLM has the suffix ForMaskedLM.
    class_suffix: str
    # What the hub answers, for the check of the export: a function of `hub.MaeLm` and
    # `head_outputs.SampleTexts` that returns entries for `export_checks.check_export`.
    expected_outputs: Callable[..., dict]
    # For the model card. The tokenizer gets `example`, and `usage` is code that calls the model.
    pipeline: str
    example: str
    usage: str
    limits: str
    extra_imports: str = ""  # that `usage` needs from transformers
    usage_of_labels: str = ""  # code that is added to `usage` if the labels have names
    # Our classes of heads; none where the head, if there is one, is that of pretraining.
    head_classes: Tuple[type, ...] = ()
    # The modules of the head, {native name: exported name}. In a native name, {} stands for the
    # name of the head.
    head_modules: Dict[str, str] = field(default_factory=dict)
    has_labels: bool = False  # config.json names the outputs of the head
    may_be_regression: bool = False  # a single output is a score
    reads_words: bool = False  # the tokenizer gets lists of words
    gives_features: bool = False  # sentence-transformers can use it: it was not fine-tuned

    @property
    def auto_class(self):
        """The class of transformers that loads the export."""
        return "AutoModel" if self is ENCODER else "AutoModel" + self.class_suffix


FINE_TUNED_LIMITS = "It was fine-tuned for one task, and fills no masks."

ENCODER = ExportKind(
    class_suffix="Model",
    expected_outputs=head_outputs.features,
    pipeline="feature-extraction",
    example='"one sentence ."',
    usage="features = model(**inputs).last_hidden_state  "
    "# (1, tokens, width); a pooler_output is untrained",
    limits="It is an encoder only: it fills no masks, and has to be fine-tuned before you "
    "compare sentences by its vectors. sentence-transformers loads it, too: one vector per text, "
    "the mean over its tokens.",
    gives_features=True,
)
MASKED_LM = ExportKind(
    class_suffix="ForMaskedLM",
    expected_outputs=head_outputs.masked_lm,
    pipeline="fill-mask",
    example='"one of the best <mask> i have ever seen ."',
    usage="logits = model(**inputs).logits  # (1, tokens, vocabulary)",
    limits="Fine-tune it before you compare sentences by its vectors, the mean over the "
    "tokens, which sentence-transformers gives.",
    # In stock classes; modeling_mae_lm.py has the native names.
    head_modules={"lm_head.dense": "lm_head.dense", "lm_head.norm": "lm_head.layer_norm"},
    gives_features=True,
)
SEQUENCE_CLASSIFICATION = ExportKind(
    class_suffix="ForSequenceClassification",
    expected_outputs=head_outputs.sequence_classification,
    pipeline="text-classification",
    example='"a text"',
    usage="logits = model(**inputs).logits  # (1, labels)",
    usage_of_labels="\nlabel = model.config.id2label[int(logits.argmax())]",
    limits=FINE_TUNED_LIMITS,
    head_classes=tuple(HEAD_OF_POOLING.values()),
    head_modules={
        "classification_heads.{}.dense": "classifier.dense",
        "classification_heads.{}.out_proj": "classifier.out_proj",
    },
    has_labels=True,
    may_be_regression=True,
)
TOKEN_CLASSIFICATION = ExportKind(
    class_suffix="ForTokenClassification",
    expected_outputs=head_outputs.token_classification,
    pipeline="token-classification",
    example='["some", "words"], is_split_into_words=True',
    usage="logits = model(**inputs).logits  "
    "# (1, tokens, labels); the first token of a word has its label\n"
    'tag = pipeline("token-classification", $path, aggregation_strategy="first"$trust)\n'
    'tag("some words")  # other strategies label pieces of words\n'
    'tag("a long text", stride=16)  # else, what is too long for the model is dropped',
    extra_imports=", pipeline",
    limits=FINE_TUNED_LIMITS + " The pipeline's `word` has no spaces between the words of a name; "
    "`text[start:end]` has them.",
    head_classes=(TokenClassificationHead,),
    head_modules={"classification_heads.{}.out_proj": "classifier"},
    has_labels=True,
    reads_words=True,
)
QUESTION_ANSWERING = ExportKind(
    class_suffix="ForQuestionAnswering",
    expected_outputs=head_outputs.question_answering,
    pipeline="question-answering",
    example='"Who came ?", "Nobody came ."',
    usage="outputs = model(**inputs)  "
    "# start_logits and end_logits of each token; both highest at 0: no answer",
    limits=FINE_TUNED_LIMITS,
    head_classes=(SpanHead,),
    head_modules={"classification_heads.{}": "qa_outputs"},
)
FINE_TUNED_KINDS = (SEQUENCE_CLASSIFICATION, TOKEN_CLASSIFICATION, QUESTION_ANSWERING)
KINDS = (ENCODER, MASKED_LM, *FINE_TUNED_KINDS)


def kind_of_head(head):
    """The kind of export for a head of fine-tuning, a module."""
    for kind in FINE_TUNED_KINDS:
        if type(head) in kind.head_classes:
            return kind
    raise UsageError(
        f"found a head of the class {type(head).__name__}, of which no export is known; add it to "
        "the `head_classes` of an ExportKind"
    )
