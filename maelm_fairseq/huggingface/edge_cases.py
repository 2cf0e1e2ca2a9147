"""Texts on which tokenizers tend to differ, for `tokenizer.check_tokenizer`."""

from ..vocabulary import MASK

EDGE_CASES = [
    "", " ", "   ", "\t", "\n", "a", " a", "a ", "  two   spaces  ", "tab\tand\nnewline\r\n",
    "\u00a0no-break\u00a0space", "wide\u3000space", "zero\u200bwidth", "\ufeffbyte order mark",
    "soft\u00adhyphen", "right\u200eto\u200fleft", ".", "...", "Wait... what?!", "don't",
    "\u201cquoted\u201d \u2014 and \u2018so\u2019", "(a) [b] {c} <d> a/b a\\b", "1999", "1,234.56",
    "3.14%", "$5 \u00a36 \u20ac7", "B2B 4x4 x86_64", "e-mail@example.org",
    "https://example.org/?a=b&c=d", "The QUICK Brown fOX", "\u0130stanbul \u0131\u015f\u0131k",
    "Stra\u00dfe STRASSE \u1e9e",
    "\u03a3\u03af\u03c3\u03c5\u03c6\u03bf\u03c2 \u039f\u0394\u039f\u03a3", "caf\u00e9",
    "cafe\u0301", "\u00c7a va", "C\u0327a va", "na\u00efve co\u00f6perate",
    "A\u030angstr\u00f6m \u212b \u212a", "Vi\u1ec7t Vie\u0323\u0302t",
    "\u0439\u043e\u0433\u0430 \u0438\u0306\u043e\u0433\u0430", "\u4e2d\u6587",
    "\u4e2d \u6587 a\u4e2d\u6587b", "\u65e5\u672c\u8a9e\u306e\u30c6\u30ad\u30b9\u30c8\u3002",
    "\uff26\uff55\uff4c\uff4c\uff57\uff49\uff44\uff54\uff48\uff01", "\uff76\uff77",
    "\ud55c\uad6d\uc5b4", "\u1112\u1161\u11ab", "\u0627\u0644\u0639\u0631\u0628\u064a\u0629",
    "\u05e2\u05d1\u05e8\u05d9\u05ea", "\u0939\u093f\u0928\u094d\u0926\u0940", "\u0e44\u0e17\u0e22",
    "\U0001f600", "nice\U0001f44d\U0001f3fdjob",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467 \u2764\ufe0f \U0001f1e9\U0001f1ea",
    "\U0001f600\U0001f601 \U0001f602", "\ufb01ne \ufb03", "x\u00b2 \u00bd \u2460 \u2122 \u2026",
    "\u2163 \u33a1 \u00b5m", "bell\x07 and \x01 control\x7f", "a\x00b", "\ufffd", "\u2581",
    "a\u2581b", "\u2581\u2581a", "\ue000private", "<", "<mask", "mask>", "<MASK>", "<0x41>",
    "a" * 300, "\u4e2d" * 300, "word " * 300, "!?" * 100,
]  # fmt: skip
EDGE_CASES_WITH_MASK = [
    MASK, f" {MASK}", f"{MASK} ", f"{MASK}{MASK}", f"{MASK} {MASK}", f"a {MASK}", f"a{MASK}",
    f"{MASK} a", f"{MASK}a", f"a  {MASK}  a", f"The film was {MASK}.", f"The film was {MASK} .",
    f"The {MASK}, the {MASK}; and {MASK}ing", f"un{MASK}able", f"\u201c{MASK}\u201d",
    f"{MASK}\n{MASK}\t{MASK}", f"\U0001f600{MASK}\U0001f600", f"\u4e2d{MASK}\u6587",
    f"{MASK}\u00e9 {MASK}e\u0301", f"<{MASK}>", f"{MASK}...", f"1{MASK}2", f"\u00a0{MASK}\u00a0a",
    f"\u3000{MASK}\u3000a", f"{MASK}\u200ba", f"{MASK}THE {MASK} THE", f"{MASK}'s", f"({MASK})",
    f"\u2581{MASK}\u2581a",
]  # fmt: skip
