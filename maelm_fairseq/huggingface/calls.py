"""Calls an exported folder in the ways of the users of its head, by transformers alone.

    python calls.py FOLDER CALLS...

Each CALLS is a file of torch.save with what `verification.expected_calls` returns.
Prints JSON: {the name of the file: what `differences` returns}. Only torch and transformers are needed.

Letters in shapes: B texts, T tokens.
"""

import json
import sys
from pathlib import Path

import torch

TOLERANCE = 1e-4  # of outputs in float32; rounding gives some 3e-6


class Export:
    """An exported folder, loaded: a tokenizer, and a model with the head that it was exported with."""

    def __init__(self, tokenizer, model):
        self.tokenizer, self.model = tokenizer, model.eval()
        self.largest, self.faults = 0.0, []

    def compare(self, what, found, expected):
        """Keeps the largest difference of outputs, and faults."""
        found, expected = (torch.as_tensor(values, dtype=torch.float32) for values in (found, expected))
        if found.shape != expected.shape:
            return self.faults.append(f"{what}: shape {[*found.shape]}, expected {[*expected.shape]}")
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
        batch = self.tokenizer(*texts, truncation=True, padding=True, return_tensors="pt", **options)
        return batch, batch["attention_mask"].bool()

    def run(self, batch):
        return self.model(**{name: values for name, values in batch.items() if name != "offset_mapping"})

    # What users of all heads do ------------------------------------------------------------------------------------

    def check_texts(self, calls):
        """Texts or pairs, padded on either side and truncated: tokens, their places, and outputs."""
        columns = [list(column) for column in zip(*calls["texts"])]
        for side in ["right", "left"]:
            batch, real = self.encode(*columns, side=side, return_offsets_mapping=True)
            for texts, row, places, kept, expected in zip(
                calls["texts"], batch["input_ids"], batch["offset_mapping"].tolist(), real, calls["tokens"]
            ):
                self.expect(f"tokens of {texts}, padded on the {side}", row[kept].tolist(), expected)
                if len(texts) == 1 and calls["trims"]:
                    found = [texts[0][begin:end] for begin, end in places]
                    self.expect(f"places of tokens of {texts}", found, [each.strip() or each for each in found])
            self.check_outputs(calls, batch, real, side)

    def check_outputs(self, calls, batch, real, side):
        if "features" in calls:
            inputs = {name: batch[name] for name in ["input_ids", "attention_mask"]}
            features = self.model.base_model(**inputs).last_hidden_state
            for row, kept, expected in zip(features, real, calls["features"]):
                self.compare(f"features, padded on the {side}", row[kept], expected)
        # Stock heads read the first column, which may be padding.
        if "predictions" in calls and (side == "right" or calls["left_padding"]):
            logits = self.run(batch).logits
            labels = self.model.config.id2label
            for row, expected in zip(logits, calls["predictions"]):
                if isinstance(expected, float):
                    self.compare(f"score, padded on the {side}", row, [expected])
                    continue
                names = [labels[i] for i in range(len(row))]
                self.expect("names of the labels", names, [*expected])
                self.compare(f"probabilities, padded on the {side}", row.softmax(-1), [*expected.values()])

    # What users of one head do -------------------------------------------------------------------------------------

    def check_filled(self, calls):
        """The probabilities of the best tokens at each mask, without special ones."""
        for text, expected in calls["filled"]:
            batch, _ = self.encode([text])
            logits = self.run(batch).logits[batch["input_ids"].eq(self.tokenizer.mask_token_id)]
            logits[:, [0, 1, 2, 3, self.tokenizer.mask_token_id]] = float("-inf")
            best = logits.softmax(-1).topk(len(expected[0])).values
            self.compare(f"probabilities at the masks of {text!r}", best, expected)

    def check_words(self, calls):
        """Lists of words, as run_ner.py of transformers gives them: the label of the first token of each."""
        labels = self.model.config.id2label
        words = [[word for word, _ in row] for row in calls["tagged"]]
        for side in ["right", "left"]:
            batch, _ = self.encode(words, side=side, is_split_into_words=True)
            best = self.run(batch).logits.argmax(-1).tolist()
            for i, (tagged, row) in enumerate(zip(calls["tagged"], best)):
                found, seen = [], set()
                for number, label in zip(batch.word_ids(i), row):
                    if number is not None and number not in seen:
                        seen.add(number)
                        found.append((tagged[number][0], labels[label]))
                self.expect(f"labels of a list of words, padded on the {side}", found, tagged[: len(found)])

    def check_groups(self, calls):
        """Texts, by the pipeline with aggregation_strategy="first": words with the labels of their first tokens."""
        from transformers import TokenClassificationPipeline

        tag = TokenClassificationPipeline(model=self.model, tokenizer=self.tokenizer)
        for tagged in calls["short"]:
            text, places = " ".join(word for word, _ in tagged), []
            for word, _ in tagged:
                begin = places[-1][1] + 1 if places else 0
                places.append((begin, begin + len(word)))
            groups = tag(text, aggregation_strategy="first", ignore_labels=[])
            told_apart = self.told_apart(text, places)
            if all(told_apart):
                ends = {end for group in groups for end in (group["start"], group["end"])}
                self.expect(f"ends of groups within words of {text!r}", sorted(ends.difference(*places)), [])
            for (begin, _), (word, label), is_whole in zip(places, tagged, told_apart):
                if is_whole:
                    found = [group["entity_group"] for group in groups if group["start"] <= begin < group["end"]]
                    kind = label[2:] if label[:2] in ("B-", "I-") else label
                    self.expect(f"group of {word!r} in {text!r}", found, [kind])

    def told_apart(self, text, places):
        """Whether the pipeline keeps each word at these places whole.

        It begins a new word at an unknown token, and at one that starts where the word does, such as the second one of
        a word that has its mark as a token of its own, or of a character whose bytes are tokens.
        """
        encoded = self.tokenizer(text, return_offsets_mapping=True)
        tokens = list(zip(encoded["input_ids"], encoded["offset_mapping"]))[1:-1]
        whole = []
        for begin, end in places:
            (_, (first, _)), *others = [(token, place) for token, place in tokens if begin <= place[0] < end]
            known = all(token != self.tokenizer.unk_token_id and place[0] > begin for token, place in others)
            whole.append(first == begin and known)
        return whole

    def check_answers(self, calls):
        """Questions with contexts of one window: the most probable span of the context, by the places of its tokens."""
        for question, context, expected in calls["answers"]:
            batch, _ = self.encode([question], [context], return_offsets_mapping=True)
            output, places = self.run(batch), batch["offset_mapping"][0].tolist()
            start, end = output.start_logits[0].log_softmax(-1), output.end_logits[0].log_softmax(-1)
            inside = [
                i for i, part in enumerate(batch.sequence_ids(0)) if part == 1 and context[slice(*places[i])].strip()
            ]
            spans = [(float(start[i] + end[j]), i, j) for i in inside for j in inside if 0 <= j - i < calls["longest"]]
            score, first, last = max(spans, default=(float("-inf"), 0, 0))
            found = context[places[first][0] : places[last][1]].strip()
            if calls["may_be_empty"] and float(start[0] + end[0]) > score:
                found = ""
            self.expect(f"answer to {question!r} in {context!r}", found, expected)


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

    Returns: {"faults": list of sentences, "largest": difference of outputs, "calls": {kind of call: how many}}
    """
    export = Export(tokenizer, model)
    for name, check in CHECKS.items():
        if name in calls:
            check(export, calls)
    counts = {name: len(calls[name]) for name in CHECKS if name in calls}
    return {"faults": export.faults, "largest": export.largest, "calls": counts}


def main():
    import transformers

    transformers.logging.set_verbosity(transformers.logging.CRITICAL)  # of pipelines that do not know our classes
    torch.set_num_threads(1)
    folder, *files = sys.argv[1:]
    found = {}
    for path in map(Path, files):
        calls = torch.load(path)
        trust = {"trust_remote_code": any(Path(folder, path.stem).glob("*.py"))}
        model = getattr(transformers, calls["class"]).from_pretrained(Path(folder, path.stem), **trust)
        tokenizer = transformers.AutoTokenizer.from_pretrained(Path(folder, path.stem), **trust)
        found[path.stem] = differences(tokenizer, model, calls)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
