#!/usr/bin/env python3
"""Golden values for internal/planner, computed independently of the Go code.

Standard library only. Exact fractions where the method is linear; a pattern search, not
derivatives, where it is a minimum; a product form, not a recursion, for Erlang C.

    python3 scripts/planner/golden.py > internal/planner/predict/testdata/golden.json
    python3 scripts/planner/golden.py erlang > internal/planner/testdata/erlang.json
"""
import itertools
import json
import math
import sys
from fractions import Fraction as F


def lcg(seed):
    """Numbers in [-0.5, 0.5), the same in any language."""
    while True:
        seed = (1103515245 * seed + 12345) % 2**31
        yield seed / 2**31 - 0.5


def make_series():
    noise = lcg(7)
    out = {
        "constant": [12.5] * 20,
        "ramp": [3.0 + 0.5 * t for t in range(24)],
        "step": [8.0] * 12 + [18.0] * 12,
        "sine": [25 + 20 * math.sin(2 * math.pi * t / 12) for t in range(60)],
        "noisy level": [20 + 4 * next(noise) for _ in range(30)],
    }
    x, walk = 0.0, []
    for _ in range(40):
        x = 0.8 * x + 6 * next(noise)
        walk.append(30 + x)
    out["autoregressive"] = walk
    errors = [3 * next(noise) for _ in range(61)]
    out["moving average noise"] = [15 + errors[t + 1] + 0.7 * errors[t] for t in range(40)]
    return {k: [round(v, 6) for v in vs] for k, vs in out.items()}


def linear(y, n):
    y = [F(v) for v in y[-8:]]
    m = len(y)
    sx, sy = F(m * (m - 1), 2), sum(y)
    sxx, sxy = F(sum(i * i for i in range(m))), sum(i * v for i, v in enumerate(y))
    b = (m * sxy - sx * sy) / (m * sxx - sx * sx)
    a = (sy - b * sx) / m
    return [max(0.0, float(a + b * (m + k))) for k in range(n)]


def matmul(a, b):
    return [[sum(x * y for x, y in zip(r, c)) for c in zip(*b)] for r in a]


def kalman(y, n):
    fm, ft = [[1, 1], [0, 1]], [[1, 0], [1, 1]]
    q, r = [[1.0, 0.0], [0.0, 0.1]], 10.0
    x, p = [[y[0]], [0.0]], [[r, 0.0], [0.0, r * 1e4]]
    for v in y[1:]:
        x = matmul(fm, x)
        p = matmul(matmul(fm, p), ft)
        p = [[p[i][j] + q[i][j] for j in range(2)] for i in range(2)]
        s = p[0][0] + r
        k = [p[0][0] / s, p[1][0] / s]
        off = v - x[0][0]
        x = [[x[i][0] + k[i] * off] for i in range(2)]
        ikh = [[1 - k[0], 0], [-k[1], 1]]
        # Joseph's form: another way to the same covariance
        p = matmul(matmul(ikh, p), [list(c) for c in zip(*ikh)])
        p = [[p[i][j] + k[i] * r * k[j] for j in range(2)] for i in range(2)]
    return [max(0.0, x[0][0] + x[1][0] * (i + 1)) for i in range(n)]


def css(w, theta, p, start):
    c, ar, ma = theta[0], theta[1:1 + p], theta[1 + p:]
    e = {}
    for t in range(start, len(w)):
        e[t] = w[t] - c - sum(a * w[t - 1 - i] for i, a in enumerate(ar)) \
            - sum(b * e.get(t - 1 - j, 0.0) for j, b in enumerate(ma))
    return sum(v * v for v in e.values()), e


def pattern_search(f, x):
    """Powell-like: lines along changing directions by golden section."""
    dirs = [[1.0 if i == j else 0.0 for i in range(len(x))] for j in range(len(x))]
    best = f(x)

    def along(x, d):
        g = lambda a: f([xi + a * di for xi, di in zip(x, d)])
        scale = 1.0
        lo, hi = -scale, scale
        while g(lo) < g(lo / 2) or g(hi) < g(hi / 2):
            lo, hi = 2 * lo, 2 * hi
            if hi > 1e6:
                break
        phi = (math.sqrt(5) - 1) / 2
        a, b = hi - phi * (hi - lo), lo + phi * (hi - lo)
        ga, gb = g(a), g(b)
        for _ in range(60):
            if ga < gb:
                hi, b, gb = b, a, ga
                a = hi - phi * (hi - lo)
                ga = g(a)
            else:
                lo, a, ga = a, b, gb
                b = lo + phi * (hi - lo)
                gb = g(b)
        s = (lo + hi) / 2
        return [xi + s * di for xi, di in zip(x, d)]

    for _ in range(80):
        start = x
        for d in dirs:
            nxt = along(x, d)
            if f(nxt) < f(x):
                x = nxt
        d = [a - b for a, b in zip(x, start)]
        if math.hypot(*d) < 1e-13:
            break
        nxt = along(x, d)
        if f(nxt) < f(x):
            x = nxt
        if best - f(x) <= 1e-13 * best:
            break
        best = f(x)
    return x


def stable(c):
    if len(c) == 0:
        return True
    if len(c) == 1:
        return abs(c[0]) < 1
    # roots of z^2 - c0 z - c1 inside the unit circle
    disc = complex(c[0] * c[0] + 4 * c[1]) ** 0.5
    return all(abs((c[0] + s * disc) / 2) < 1 for s in (1, -1))


def arima(y, n):
    if len(set(y)) == 1:
        return [y[0]] * n
    best = None
    for d, p, q in itertools.product((0, 1), (0, 1, 2), (0, 1, 2)):
        if p + q > 2:
            continue
        w = [b - a for a, b in zip(y, y[1:])] if d else list(y)
        start = 3 - d
        count, k = len(w) - start, 2 + p + q
        if count - k - 1 <= 0:
            continue
        x0 = [sum(w) / len(w)] + [0.0] * (p + q)
        # search over the mean in place of the constant: it hardly depends on the others
        as_theta = lambda z: [z[0] * (1 - sum(z[1:1 + p]))] + z[1:]
        theta = as_theta(pattern_search(lambda z: css(w, as_theta(z), p, start)[0], x0))
        if not stable(theta[1:1 + p]) or not stable([-v for v in theta[1 + p:]]):
            continue
        sse, e = css(w, theta, p, start)
        sse = max(sse, 1e-20 * sum(v * v for v in w))
        aicc = count * math.log(sse / count) + 2 * k + 2 * k * (k + 1) / (count - k - 1)
        if best is None or aicc < best[0]:
            best = (aicc, d, p, q, theta, w, e)
    _, d, p, q, theta, w, e = best
    w, e, last, out = list(w), dict(e), y[-1], []
    for _ in range(n):
        v = theta[0] + sum(a * w[-1 - i] for i, a in enumerate(theta[1:1 + p])) \
            + sum(b * e.get(len(w) - 1 - j, 0.0) for j, b in enumerate(theta[1 + p:]))
        w.append(v)
        last = last + v if d else v
        out.append(max(0.0, last))
    return out


def holt_winters(y, n, m):
    gammas = (0.05, 0.2, 0.4) if m else (0.0,)
    best = None
    for alpha in (0.05, 0.2, 0.4, 0.6, 0.8):
        for beta in (0.0, 0.05, 0.2):
            for gamma in gammas:
                if m:
                    m1, m2 = sum(y[:m]) / m, sum(y[m:2 * m]) / m
                    b = (m2 - m1) / m
                    s = {i: y[i] - m1 - b * (i - (m - 1) / 2) for i in range(m)}
                    level, t0 = m1 + b * (m - 1) / 2, m
                else:
                    level, b, s, t0 = y[0], 0.0, {}, 1
                sse = 0.0
                for t in range(t0, len(y)):
                    st = s.get(t - m, 0.0) if m else 0.0
                    fit = level + 0.95 * b + st
                    sse += (y[t] - fit) ** 2
                    new = alpha * (y[t] - st) + (1 - alpha) * (level + 0.95 * b)
                    b = beta * (new - level) + (1 - beta) * 0.95 * b
                    level = new
                    if m:
                        s[t] = gamma * (y[t] - level) + (1 - gamma) * st
                if best is None or sse < best[0]:
                    best = (sse, level, b, dict(s))
    _, level, b, s = best
    out, damp = [], 0.0
    for k in range(1, n + 1):
        damp += 0.95 ** k
        v = level + damp * b
        if m:
            v += s[len(y) - m + (k - 1) % m]
        out.append(max(0.0, v))
    return out


def predictors():
    cases = []
    seasons = {"sine": 12}
    for name, y in make_series().items():
        n = 4
        forecasts = {"arima": arima(y, n)} if name not in ("ramp", "sine") else {}  # a fit without error has no AICc
        cases.append({"series": name, "values": y, "season": seasons.get(name, 0), "forecasts": {
            "constant": [y[-1]] * n,
            "moving-average": [sum(y[-8:]) / 8] * n,
            "linear": linear(y, n),
            "kalman": kalman(y, n),
            "holt-winters": holt_winters(y, n, seasons.get(name, 0)),
            **forecasts,
        }})
    return cases


def erlang():
    """Erlang C by its sum, in exact fractions."""
    cases = []
    for servers, load in [(1, "1/2"), (2, "1"), (2, "19/10"), (3, "2"), (5, "4"), (10, "8"), (20, "39/2"), (4, "1/10")]:
        a = F(load)
        terms = [a**k / math.factorial(k) for k in range(servers)]
        last = a**servers / math.factorial(servers) * servers / (servers - a)
        cases.append({"servers": servers, "load": float(a), "wait": float(last / (sum(terms) + last))})
    return cases


json.dump(erlang() if sys.argv[1:] == ["erlang"] else predictors(), sys.stdout, indent=1)
print()
