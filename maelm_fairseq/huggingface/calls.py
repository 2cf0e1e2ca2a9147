"""Calls an exported folder in the ways that users of its head do, with transformers alone.

    python calls.py FOLDER CALLS...

Each CALLS is a file of torch.save with what `verification.expected_calls` returns.
Prints JSON: {the name of the file: what `differences` returns}. Only torch and transformers are
needed.

Letters in shapes: B texts, T tokens.
"""

import json
import sys
from pathlib import Path

import torch

TOLERANCE = 1e-4  # of outputs in float32; rounding gives some 3e-6


class Export:
    """An exported folder, loaded: a tokenizer, and a model with the head that it was exported with.

    `largest` is the largest difference of outputs so far, `faults` a list of sentences.
    """

    def __init__(self, tokenizer, model):
        self.tokenizer = tokenizer
        self.model = model.eval()
        self.largest = 0.0
        self.faults = []

    def compare(self, what, found, expected):
        """Compares outputs: keeps their largest difference, and a fault if there is one."""
        found = torch.as_tensor(found, dtype=torch.float32)
        expected = torch.as_tensor(expected, dtype=torch.float32)
        if found.shape != expected.shape:
            self.faults.append(f"{what}: shape {[*found.shape]}, expected {[*expected.shape]}")
            return
        difference = float((found - expected).abs().max()) if found.numel() else 0.0
        self.largest = max(self.largest, difference)
        if not difference < TOLERANCE:
            self.faults.append(f"{what}: difference {difference:.2g}")

    def expect(self, what, found, expected):
        if found != expected:
            self.faults.append(f"{what}: {str(found)[:200]}, expected {str(expected)[:200]}")

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

    def check_texts(self, calls):
        """Texts or pairs, padded on either side and truncated: tokens, their offsets, outputs."""
        columns = [list(column) for column in zip(*calls["texts"])]
        for side in ["right", "left"]:
            batch, real = self.encode(*columns, side=side, return_offsets_mapping=True)
            all_offsets = batch["offset_mapping"].tolist()
            rows = zip(calls["texts"], batch["input_ids"], all_offsets, real, calls["tokens"])
            for texts, row, spans, is_real, expected in rows:
                what = f"tokens of {texts}, padded on the {side}"
                self.expect(what, row[is_real].tolist(), expected)
                if len(texts) == 1 and calls["trims"]:
                    parts = [texts[0][begin:end] for begin, end in spans]
                    trimmed = [part.strip() or part for part in parts]
                    self.expect(f"offsets of tokens of {texts}", parts, trimmed)
            self.check_outputs(calls, batch, real, side)

    def check_outputs(self, calls, batch, real, side):
        if "features" in calls:
            inputs = {name: batch[name] for name in ["input_ids", "attention_mask"]}
            features = self.model.base_model(**inputs).last_hidden_state
            for row, is_real, expected in zip(features, real, calls["features"]):
                self.compare(f"features, padded on the {side}", row[is_real], expected)
        # Stock heads read the first column, which may be padding.
        if "predictions" in calls and (side == "right" or calls["left_padding"]):
            self.check_predictions(calls["predictions"], self.run(batch).logits, side)

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
            what = f"probabilities, padded on the {side}"
            self.compare(what, probabilities, [*expected.values()])

    # What users of one head do ------------------------------------------------------------------

    def check_filled(self, calls):
        """The probabilities of the best tokens at each mask, without special ones."""
        mask = self.tokenizer.mask_token_id
        for text, expected in calls["filled"]:
            batch, _ = self.encode([text])
            logits = self.run(batch).logits[batch["input_ids"].eq(mask)]
            logits[:, [0, 1, 2, 3, mask]] = float("-inf")
            best = logits.softmax(-1).topk(len(expected[0])).values
            self.compare(f"probabilities at the masks of {text!r}", best, expected)

    def check_words(self, calls):
        """Lists of words, as run_ner.py of transformers gives them.

        The label of a word is that of its first token.
        """
        labels = self.model.config.id2label
        words = [[word for word, _ in row] for row in calls["tagged"]]
        for side in ["right", "left"]:
            batch, _ = self.encode(words, side=side, is_split_into_words=True)
            best = self.run(batch).logits.argmax(-1).tolist()
            for i, (tagged, row) in enumerate(zip(calls["tagged"], best)):
                labelled = []
                seen = set()
                for number, label in zip(batch.word_ids(i), row):
                    if number is not None and number not in seen:
                        seen.add(number)
                        labelled.append((tagged[number][0], labels[label]))
                what = f"labels of a list of words, padded on the {side}"
                self.expect(what, labelled, tagged[: len(labelled)])

    def check_groups(self, calls):
        """Texts, given to the pipeline with aggregation_strategy="first".

        It returns words with the labels of their first tokens.
        """
        from transformers import TokenClassificationPipeline

        tag = TokenClassificationPipeline(model=self.model, tokenizer=self.tokenizer)
        for tagged in calls["short"]:
            text = " ".join(word for word, _ in tagged)
            spans = []
            for word, _ in tagged:
                begin = spans[-1][1] + 1 if spans else 0
                spans.append((begin, begin + len(word)))
            groups = tag(text, aggregation_strategy="first", ignore_labels=[])
            told_apart = self.told_apart(text, spans)
            if all(told_apart):
                ends = {end for group in groups for end in (group["start"], group["end"])}
                within_words = sorted(ends.difference(*spans))
                self.expect(f"ends of groups within words of {text!r}", within_words, [])
            for (begin, _), (word, label), is_whole in zip(spans, tagged, told_apart):
                if is_whole:
                    around = [group for group in groups if group["start"] <= begin < group["end"]]
                    found = [group["entity_group"] for group in around]
                    expected = label[2:] if label[:2] in ("B-", "I-") else label
                    self.expect(f"group of {word!r} in {text!r}", found, [expected])

    def told_apart(self, text, spans):
        """Whether the pipeline keeps the word of each span whole.

        It begins a new word at an unknown token, and at a token that starts where the word does.
        The second token of a word does so if the first is only the mark of a word's beginning, or
        if the bytes of one character are several tokens.
        """
        encoded = self.tokenizer(text, return_offsets_mapping=True)
        tokens = list(zip(encoded["input_ids"], encoded["offset_mapping"]))[1:-1]
        whole = []
        for begin, end in spans:
            of_word = [(token, span) for token, span in tokens if begin <= span[0] < end]
            (_, first_span), *others = of_word
            others_continue = all(
                token != self.tokenizer.unk_token_id and span[0] > begin for token, span in others
            )
            whole.append(first_span[0] == begin and others_continue)
        return whole

    def check_answers(self, calls):
        """Questions with contexts of one window.

        The answer is the most probable span of the context, by the offsets of its tokens.
        """
        for question, context, expected in calls["answers"]:
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
                ends = [j for j in inside if 0 <= j - i < calls["longest"]]
                spans += [(float(start[i] + end[j]), i, j) for j in ends]
            score, first, last = max(spans, default=(float("-inf"), 0, 0))
            answer = context[offsets[first][0] : offsets[last][1]].strip()
            if calls["may_be_empty"] and float(start[0] + end[0]) > score:
                answer = ""
            self.expect(f"answer to {question!r} in {context!r}", answer, expected)


CHECKS = {
    "texts": Export.check_texts,
    "filled": Export.check_filled,
    "tagged": Export.check_words,
    "short": Export.check_groups,
    "answers": Export.check_answers,
}


@torch.no_grad()
def differences(tokenizer, model, calls):
    """Makes the calls and compares.

    Returns: a dict
        faults: list of sentences
        largest: the largest difference of outputs
        calls: {kind of call: how many}
    """
    export = Export(tokenizer, model)
    for name, check in CHECKS.items():
        if name in calls:
            check(export, calls)
    counts = {name: len(calls[name]) for name in CHECKS if name in calls}
    return {"faults": export.faults, "largest": export.largest, "calls": counts}


def main():
    import transformers

    # Its pipelines would warn that they do not know our classes.
    transformers.logging.set_verbosity(transformers.logging.CRITICAL)
    torch.set_num_threads(1)
    folder, *files = sys.argv[1:]
    results = {}
    for path in map(Path, files):
        calls = torch.load(path)
        export = Path(folder, path.stem)
        trust = {"trust_remote_code": any(export.glob("*.py"))}
        model = getattr(transformers, calls["class"]).from_pretrained(export, **trust)
        tokenizer = transformers.AutoTokenizer.from_pretrained(export, **trust)
        results[path.stem] = differences(tokenizer, model, calls)
    print(json.dumps(results))


if __name__ == "__main__":
    main()
