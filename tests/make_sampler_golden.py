#!/usr/bin/env python3
"""Prints the golden ids of tests/test_sampler.cpp: the steps of models/sampler.cpp written down once more from their definitions,
plainly (sorted lists, quadratic searches, the C library's exp), so that agreement means something. Needs numpy."""
import math
import numpy as np

M = (1 << 64) - 1


class Random:  # xoshiro256** seeded by splitmix64
    def __init__(self, seed):
        self.s = []
        for _ in range(4):
            seed = (seed + 0x9E3779B97F4A7C15) & M
            z = seed
            z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & M
            z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & M
            self.s.append(z ^ (z >> 31))

    def uniform(self):
        s, rot = self.s, lambda x, n: ((x << n) | (x >> (64 - n))) & M
        result = rot(s[1] * 5 & M, 7) * 9 & M
        t = s[1] << 17 & M
        s[2] ^= s[0]; s[3] ^= s[1]; s[1] ^= s[2]; s[0] ^= s[3]; s[2] ^= t; s[3] = rot(s[3], 45)
        return (result >> 11) * 2.0 ** -53


def probs(c):  # {id: logit} -> {id: p}
    top = max(c.values())
    w = {i: math.exp(l - top) for i, l in sorted(c.items())}
    total = sum(w.values())
    return {i: x / total for i, x in w.items()}


def keep_share(c, share, key):
    p, kept, mass = probs(c), {}, 0.0
    for i in sorted(c, key=lambda i: (key(i), i)):
        kept[i] = c[i]
        mass += p[i]
        if mass >= share: break
    return kept


def penalties(l, hist, repeat, last_n, freq, presence):
    window = hist if last_n < 0 else hist[-last_n:] if last_n else []
    for i in set(window):
        x = float(l[i])
        x = x / repeat if x > 0 else x * repeat
        l[i] = np.float32(x - (freq * window.count(i) + presence))


def dry(l, hist, mult, base, allowed, breakers):
    longest = {}
    for end in range(len(hist) - 1):  # a run ends at hist[end]; hist[end + 1] followed it
        n = 0
        while n <= end and hist[end - n] == hist[-1 - n] and hist[end - n] not in breakers: n += 1
        longest[hist[end + 1]] = max(longest.get(hist[end + 1], 0), n)
    for i, n in longest.items():
        if n >= allowed and i not in breakers: l[i] = np.float32(float(l[i]) - mult * base ** (n - allowed))


def choose(logits, hist, s, rnd, mem):
    l = logits.copy()
    f = lambda name, default: float(np.float32(s.get(name, default)))
    u = rnd.uniform()
    penalties(l, hist, f("repeat_penalty", 1), int(f("repeat_last_n", 64)), f("frequency_penalty", 0), f("presence_penalty", 0))
    if "dry.multiplier" in s:
        dry(l, hist, f("dry.multiplier", 0), f("dry.base", 1.75), int(f("dry.allowed_length", 2)), s.get("breakers", []))
    c = {i: float(x) for i, x in enumerate(l) if x > -np.inf}
    tau = f("mirostat.tau", 0)
    if not tau:
        if "top_n_sigma" in s:
            v = np.array(list(c.values()))
            c = {i: x for i, x in c.items() if x >= v.max() - f("top_n_sigma", 0) * v.std()}
        if "top_k" in s: c = dict(sorted(c.items(), key=lambda t: (-t[1], t[0]))[:s["top_k"]])
        if "typical_p" in s:
            p = probs(c)
            h = -sum(x * math.log(x) for x in p.values())
            c = keep_share(c, f("typical_p", 1), lambda i: abs(-math.log(p[i]) - h))
        if "top_p" in s: c = keep_share(c, f("top_p", 1), lambda i: -c[i])
        if "min_p" in s:
            p = probs(c)
            c = {i: x for i, x in c.items() if p[i] >= f("min_p", 0) * max(p.values())}
        if "xtc.probability" in s and rnd.uniform() < f("xtc.probability", 0):
            p = probs(c)
            above = sorted((i for i in c if p[i] >= f("xtc.threshold", 0.1)), key=lambda i: (-c[i], i))
            for i in above[:-1]: del c[i]
    temp = f("temp", 1)
    if temp and f("dynatemp.range", 0) and len(c) > 1:
        r, h = f("dynatemp.range", 0), -sum(x * math.log(x) for x in probs(c).values() if x)
        low = max(0.0, temp - r)
        temp = low + (temp + r - low) * (h / math.log(len(c))) ** f("dynatemp.exponent", 1)
    if temp == 0:
        c = dict([min(c.items(), key=lambda t: (-t[1], t[0]))])
    else:
        c = {i: x / temp for i, x in c.items()}
    if tau:
        mu = mem.setdefault("mu", 2 * tau)
        p = probs(c)
        best = min(c, key=lambda i: (-c[i], i))
        c = {i: x for i, x in c.items() if -math.log2(p[i]) <= mu or i == best}
    p, mass = probs(c), 0.0
    for i in sorted(c):
        mass += p[i]
        if u < mass: break
    if tau: mem["mu"] = max(0.0, mem["mu"] - f("mirostat.eta", 0.1) * (-math.log2(p[i]) - tau))
    return i


CASES = [
    dict(), dict(temp=0), {"temp": 0.8, "top_k": 40, "top_p": 0.95, "min_p": 0.05},
    {"repeat_penalty": 1.3, "repeat_last_n": 8, "frequency_penalty": 0.4, "presence_penalty": 0.7, "temp": 0},
    {"dry.multiplier": 0.8, "dry.base": 1.75, "dry.allowed_length": 2, "breakers": [3], "top_k": 4},
    {"top_n_sigma": 1.5}, {"typical_p": 0.6}, {"top_p": 0.7, "temp": 1.5}, {"min_p": 0.2},
    {"xtc.probability": 0.5, "xtc.threshold": 0.1, "temp": 0.7}, {"temp": 1.0, "dynatemp.range": 0.8, "dynatemp.exponent": 1.5},
    {"mirostat.tau": 3, "mirostat.eta": 0.2},
]
for n, case in enumerate(CASES):
    n_vocab = 9 if case.keys() & {"dry.multiplier", "xtc.probability"} else 300
    logits = np.array([(((i * 2654435761) % 2 ** 32) >> 18) / 2048 - 3 for i in range(n_vocab)], dtype=np.float32)
    rnd, hist, mem = Random(1000 + n), [], {}
    for _ in range(24): hist.append(choose(logits, hist, case, rnd, mem))
    settings = ", ".join('{"%s", %gf}' % (k, v) if "." in "%g" % v else '{"%s", %g}' % (k, v)
                         for k, v in case.items() if k != "breakers")
    print("    {{%s}, %d,\n     {%s}}," % (settings, n_vocab, ", ".join(map(str, hist))))
