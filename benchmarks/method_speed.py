"""The step time of every method against SimCSE's, on a CPU: same weights, same batches of 64 at length 32, in turn.

    SENTCLI_DATA=... python benchmarks/method_speed.py [--runs 5] [--steps 4] [--only micse,infocse]

Claim: a step of miCSE takes at most 1.6 x SimCSE's. The overhead of the others is measured, not promised.
"""

import argparse

from common import machine, seconds
from train_speed import BATCH, ours, wiki

from sentcli.methods import METHODS, configure
from sentcli.methods.method import Method

CASES: dict[str, Method] = {
    "simcse (again: the noise)": METHODS["simcse"],
    **{
        name: METHODS[name]
        for name in ("informin-cl", "micse", "infocse", "is-bert", "whitenedcse", "ct", "mirror-bert", "mlm")
    },
    "simcse + ami": configure(METHODS["simcse"], [("objectives+", "ami")]),
    "whitenedcse, one encoding": configure(METHODS["whitenedcse"], [("head.views_from", "shuffle")]),
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    sentences = wiki(BATCH * options.steps)
    print(machine())
    print("| method | ms a step | x SimCSE (median of pairs) | from | to |")
    print("|---|---|---|---|---|")
    simcse = ours(METHODS["simcse"], sentences)
    simcse()
    for name, method in CASES.items():
        if options.only and name not in options.only.split(","):
            continue
        run = ours(method, sentences)
        run()
        pairs = [(seconds(run), seconds(simcse)) for _ in range(options.runs)]
        ratios = sorted(mine / base for mine, base in pairs)
        step = sorted(mine for mine, _ in pairs)[len(pairs) // 2] / options.steps * 1000
        print(
            f"| {name} | {step:.0f} | {ratios[len(ratios) // 2]:.2f} | {ratios[0]:.2f} | {ratios[-1]:.2f} |", flush=True
        )


if __name__ == "__main__":
    main()
