#!/usr/bin/env python3
"""Writes models/unicode_data.inc, the Unicode tables of models/unicode.cpp, to standard output.

    python3 models/unicode_data.py > models/unicode_data.inc

Needs the modules unicodedata2 (the version of Unicode is its version; 16.0.0 is what today's tokenizers are built with)
and regex (the Script property, which unicodedata does not have)."""
import regex
import unicodedata2 as ucd

CATEGORIES = "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Cs Co Cn".split()
CODE_POINTS = range(0x110000)
HANGUL = range(0xAC00, 0xD7A4)  # composed and decomposed by arithmetic


def runs(value_of):
    """[first, last, value] of each run of code points with one value that is not None."""
    out = []
    for cp in CODE_POINTS:
        value = value_of(chr(cp))
        if value is None:
            continue
        if out and out[-1][2] == value and out[-1][1] == cp - 1:
            out[-1][1] = cp
        else:
            out.append([cp, cp, value])
    return out


def table(comment, declaration, rows):
    print(f"// {comment}\nconstexpr {declaration}[] = {{")
    line = ""
    for row in rows:
        text = (row if isinstance(row, str) else "{" + ",".join(row) + "}") + ","
        if len(line) + len(text) > 136:
            print(line)
            line = ""
        line += text
    print(line + "\n};")


def case_rows(to_case, base=lambda c: c):
    """(first, last, step, delta): every step-th code point of a range goes to itself + delta. Rows only for characters
    that to_case makes another one of than base does, and not several."""
    pairs = [(cp, ord(to_case(chr(cp))) - cp) for cp in CODE_POINTS
             if ucd.category(chr(cp)) != "Cn" and len(to_case(chr(cp))) == 1 and to_case(chr(cp)) != base(chr(cp))]
    out = []
    for cp, delta in pairs:
        if out and out[-1][3] == delta and cp - out[-1][1] in (1, 2) and out[-1][2] in (0, cp - out[-1][1]):
            out[-1][1], out[-1][2] = cp, cp - out[-1][1]
        else:
            out.append([cp, cp, 0, delta])
    return [(hex(a), hex(b), str(step or 1), str(d)) for a, b, step, d in out]


def main():
    print("// models/unicode_data.inc: made by models/unicode_data.py from Unicode", ucd.unidata_version + ". Not edited by hand.")
    table("first code point * 32 + category of each run; a run ends where the next begins", "uint32_t kCategoryRuns",
          [hex(a * 32 + CATEGORIES.index(v)) for a, _, v in runs(ucd.category)])
    table("ranges of the script Han", "code_range kHanRanges",
          [(hex(a), hex(b)) for a, b, _ in
           runs(lambda c: 1 if regex.match(r"\p{Han}", c) and ucd.category(c) != "Cn" else None)])
    table("canonical combining classes that are not 0", "class_range kCombiningClasses",
          [(hex(a), hex(b), str(v)) for a, b, v in runs(lambda c: ucd.combining(c) or None)])
    table("lower case: first, last, step, what to add", "case_range kLowerRanges", case_rows(str.lower))
    table("the same of upper case", "case_range kUpperRanges", case_rows(str.upper))
    table("title case where it is not upper case", "case_range kTitleRanges", case_rows(str.title, str.upper))
    table("case folding where it is not lower case", "case_range kFoldRanges", case_rows(str.casefold, str.lower))
    table("characters that become several: code point, case (l, u, t, f), what it becomes", "special_case kSpecialCases",
          [(hex(cp), f"'{case}'", *(hex(ord(c)) for c in to_case(chr(cp)).ljust(3, "\0")))
           for case, to_case in (("f", str.casefold), ("l", str.lower), ("t", str.title), ("u", str.upper))
           for cp in CODE_POINTS if len(to_case(chr(cp))) > 1])
    table("digits that are no decimal digits", "code_range kDigitRanges",
          [(hex(a), hex(b)) for a, b, _ in runs(lambda c: 1 if c.isdigit() and not c.isdecimal() else None)])
    table("letters that are numbers", "code_range kNumericLetters",
          [(hex(a), hex(b)) for a, b, _ in runs(lambda c: 1 if c.isnumeric() and c.isalpha() else None)])
    decompositions = []
    for cp in CODE_POINTS:
        text = ucd.decomposition(chr(cp))
        if text and not text.startswith("<") and cp not in HANGUL:
            parts = [int(x, 16) for x in text.split()]
            decompositions.append((cp, parts[0], parts[1] if len(parts) > 1 else 0))
    table("one step of canonical decomposition: code point, first, second or 0; Hangul is arithmetic",
          "decomposition kDecompositions", [tuple(hex(x) for x in row) for row in decompositions])
    composed = [i for i, (cp, a, b) in enumerate(decompositions) if b and ucd.normalize("NFC", chr(a) + chr(b)) == chr(cp)]
    composed.sort(key=lambda i: decompositions[i][1:])
    table("rows of kDecompositions that compose, ordered by what they are composed of", "uint16_t kCompositions",
          [str(i) for i in composed])


main()
