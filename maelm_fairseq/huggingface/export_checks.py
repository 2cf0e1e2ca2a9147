"""Checks an exported folder by calling it as users do, with transformers alone.

    python export_checks.py FOLDER EXPECTED...

Each EXPECTED is a file of torch.save with what `verification.expected_outputs` returns, named after
a folder in FOLDER.
Prints JSON: {the name of the file: what `check_export` returns}. Only torch and transformers are
needed.

Letters in shapes: B texts, T tokens.
"""

import json
import sys
from pathlib import Path
from typing import Callable, NamedTuple

import torch

TOLERANCE = 1e-4  # of outputs in float32; rounding gives some 3e-6


class ExportChecker:
    """Checks the tokenizer and the model of an exported folder.

    `largest_difference` is the largest of all outputs so far, `faults` a list of sentences.
    """

    def __init__(self, tokenizer, model):
        self.tokenizer = tokenizer
        self.model = model.eval()
        self.largest_difference = 0.0
        self.faults = []

    def compare(self, name, actual, expected):
        """Compares outputs: keeps their largest difference, and a fault if there is one.

        Messages call the outputs by the name.
        """
        actual = torch.as_tensor(actual, dtype=torch.float32)
        expected = torch.as_tensor(expected, dtype=torch.float32)
        if actual.shape != expected.shape:
            self.faults.append(f"{name}: shape {[*actual.shape]}, expected {[*expected.shape]}")
            return
        difference = float((actual - expected).abs().max()) if actual.numel() else 0.0
        self.largest_difference = max(self.largest_difference, difference)
        if not difference < TOLERANCE:
            self.faults.append(f"{name}: difference {difference:.2g}")

    def expect(self, name, actual, expected):
        """Keeps a fault if a value is not the expected one."""
        if actual != expected:
            self.faults.append(f"{name}: {str(actual)[:200]}, expected {str(expected)[:200]}")

    def encode(self, *texts, side="right", **options):
        """A batch, padded and truncated, and which of its tokens are real, (B, T) bool."""
        self.tokenizer.padding_side = side
        batch = self.tokenizer(
            *texts, truncation=True, padding=True, return_tensors="pt", **options
        )
        return batch, batch["attention_mask"].bool()

    def run(self, batch):
        inputs = {name: values for name, values in batch.items() if name != "offset_mapping"}
        return self.model(**inputs)

    # What users of all heads do -----------------------------------------------------------------

    def check_texts(self, expected):
        """Texts or pairs, padded on either side and truncated: tokens, their offsets, outputs."""
        columns = [list(column) for column in zip(*expected["texts"])]
        for side in ["right", "left"]:
            batch, real = self.encode(*columns, side=side, return_offsets_mapping=True)
            all_offsets = batch["offset_mapping"].tolist()
            rows = zip(expected["texts"], batch["input_ids"], all_offsets, real, expected["tokens"])
            for texts, row, spans, is_real, tokens in rows:
                name = f"tokens of {texts}, padded on the {side}"
                self.expect(name, row[is_real].tolist(), tokens)
                if len(texts) == 1 and expected["trims_offsets"]:
                    parts = [texts[0][begin:end] for begin, end in spans]
                    trimmed = [part.strip() or part for part in parts]
                    self.expect(f"offsets of tokens of {texts}", parts, trimmed)
            self.check_outputs(expected, batch, real, side)

    def check_outputs(self, expected, batch, real, side):
        """Features or predictions of a batch."""
        if "features" in expected:
            inputs = {name: batch[name] for name in ["input_ids", "attention_mask"]}
            features = self.model.base_model(**inputs).last_hidden_state
            for row, is_real, features_of_text in zip(features, real, expected["features"]):
                self.compare(f"features, padded on the {side}", row[is_real], features_of_text)
        # Stock heads read the first column, which may be padding.
        if "predictions" in expected and (side == "right" or expected["allows_left_padding"]):
            self.check_predictions(expected["predictions"], self.run(batch).logits, side)

    def check_predictions(self, predictions, logits, side):
        """Scores, or the probability of each label."""
        labels = self.model.config.id2label
        for row, expected in zip(logits, predictions):
            if isinstance(expected, float):
                self.compare(f"score, padded on the {side}", row, [expected])
                continue
            names = [labels[i] for i in range(len(row))]
            self.expect("names of the labels", names, [*expected])
            probabilities = row.softmax(-1)
            name = f"probabilities, padded on the {side}"
            self.compare(name, probabilities, [*expected.values()])

    # What users of one head do ------------------------------------------------------------------

    def check_masks(self, expected):
        """The probabilities of the best tokens at each mask, without special ones."""
        mask = self.tokenizer.mask_token_id
        for text, probabilities in expected["mask_probabilities"]:
            batch, _ = self.encode([text])
            logits = self.run(batch).logits[batch["input_ids"].eq(mask)]
            logits[:, [0, 1, 2, 3, mask]] = float("-inf")
            best = logits.softmax(-1).topk(len(probabilities[0])).values
            self.compare(f"probabilities at the masks of {text!r}", best, probabilities)

    def check_words(self, expected):
        """Lists of words, as run_ner.py of transformers gives them.

        A word has the label of its first token.
        """
        labels = self.model.config.id2label
        words = [[word for word, _ in row] for row in expected["word_labels"]]
        for side in ["right", "left"]:
            batch, _ = self.encode(words, side=side, is_split_into_words=True)
            best = self.run(batch).logits.argmax(-1).tolist()
            for i, (tagged, row) in enumerate(zip(expected["word_labels"], best)):
                labelled = []
                seen = set()
                for number, label in zip(batch.word_ids(i), row):
                    if number is not None and number not in seen:
                        seen.add(number)
                        labelled.append((tagged[number][0], labels[label]))
                name = f"labels of a list of words, padded on the {side}"
                self.expect(name, labelled, tagged[: len(labelled)])

    def check_pipeline(self, expected):
        """Texts, given to the pipeline with aggregation_strategy="first".

        It returns words with the labels of their first tokens.
        """
        from transformers import TokenClassificationPipeline

        tag = TokenClassificationPipeline(model=self.model, tokenizer=self.tokenizer)
        for tagged in expected["pipeline_texts"]:
            text = " ".join(word for word, _ in tagged)
            spans = []
            for word, _ in tagged:
                begin = spans[-1][1] + 1 if spans else 0
                spans.append((begin, begin + len(word)))
            groups = tag(text, aggregation_strategy="first", ignore_labels=[])
            are_whole = self.kept_whole_by_word(text, spans)
            if all(are_whole):
                ends = {end for group in groups for end in (group["start"], group["end"])}
                within_words = sorted(ends.difference(*spans))
                self.expect(f"ends of groups within words of {text!r}", within_words, [])
            for (begin, _), (word, label), is_whole in zip(spans, tagged, are_whole):
                if is_whole:
                    around = [group for group in groups if group["start"] <= begin < group["end"]]
                    entities = [group["entity_group"] for group in around]
                    # The pipeline takes what follows a hyphen for the entity.
                    entity = label.partition("-")[2] or label
                    self.expect(f"group of {word!r} in {text!r}", entities, [entity])

    def kept_whole_by_word(self, text, spans):
        """Whether the pipeline keeps the word of each span whole.

        It begins a new word at an unknown token, and at a token that starts where the word does.
        The second token of a word does so if the first is only the mark of a word's beginning, or
        if the bytes of one character are several tokens.
        """
        encoded = self.tokenizer(text, return_offsets_mapping=True)
        tokens = list(zip(encoded["input_ids"], encoded["offset_mapping"]))[1:-1]
        whole = []
        for begin, end in spans:
            tokens_of_word = [(token, span) for token, span in tokens if begin <= span[0] < end]
            (_, first_span), *others = tokens_of_word
            others_continue = all(
                token != self.tokenizer.unk_token_id and span[0] > begin for token, span in others
            )
            whole.append(first_span[0] == begin and others_continue)
        return whole

    def check_answers(self, expected):
        """Questions with contexts of one window.

        The answer is the most probable span of the context, by the offsets of its tokens.
        """
        for question, context, expected_answer in expected["answers"]:
            batch, _ = self.encode([question], [context], return_offsets_mapping=True)
            output = self.run(batch)
            offsets = batch["offset_mapping"][0].tolist()
            start = output.start_logits[0].log_softmax(-1)
            end = output.end_logits[0].log_softmax(-1)
            inside = []  # the tokens of the context
            for i, part in enumerate(batch.sequence_ids(0)):
                if part == 1 and context[slice(*offsets[i])].strip():
                    inside.append(i)
            spans = []
            for i in inside:
                ends = [j for j in inside if 0 <= j - i < expected["max_answer_tokens"]]
                spans += [(float(start[i] + end[j]), i, j) for j in ends]
            score, first, last = max(spans, default=(float("-inf"), 0, 0))
            answer = context[offsets[first][0] : offsets[last][1]].strip()
            if expected["may_be_empty"] and float(start[0] + end[0]) > score:
                answer = ""
            self.expect(f"answer to {question!r} in {context!r}", answer, expected_answer)


class Check(NamedTuple):
    """A check of an `ExportChecker`, which a key of the expected outputs asks for."""

    title: str  # what it tries, for the user
    run: Callable[[ExportChecker, dict], None]


CHECKS = {
    "texts": Check("texts", ExportChecker.check_texts),
    "mask_probabilities": Check("texts with masks", ExportChecker.check_masks),
    "word_labels": Check("lists of words", ExportChecker.check_words),
    "pipeline_texts": Check("texts to the pipeline", ExportChecker.check_pipeline),
    "answers": Check("questions", ExportChecker.check_answers),
}


@torch.no_grad()
def check_export(tokenizer, model, expected):
    """Makes all checks that there are expected outputs for.

    Returns: a dict
        faults: list of sentences
        largest_difference: of outputs
        counts: {key of `CHECKS`: how many inputs were checked}
    """
    checker = ExportChecker(tokenizer, model)
    counts = {}
    for key, check in CHECKS.items():
        if key in expected:
            check.run(checker, expected)
            counts[key] = len(expected[key])
    return {
        "faults": checker.faults,
        "largest_difference": checker.largest_difference,
        "counts": counts,
    }


def main():
    import transformers

    # Its pipelines would warn that they do not know our classes.
    transformers.logging.set_verbosity(transformers.logging.CRITICAL)
    torch.set_num_threads(1)
    folder, *files = sys.argv[1:]
    results = {}
    for path in map(Path, files):
        expected = torch.load(path)
        export = Path(folder, path.stem)
        trust = {"trust_remote_code": any(export.glob("*.py"))}
        model = getattr(transformers, expected["auto_class"]).from_pretrained(export, **trust)
        tokenizer = transformers.AutoTokenizer.from_pretrained(export, **trust)
        results[path.stem] = check_export(tokenizer, model, expected)
    print(json.dumps(results))


if __name__ == "__main__":
    main()
