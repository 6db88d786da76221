#!/usr/bin/python3
"""Puts the figures of `evaluate.py --report FILE` into docs/demo-model.md, between its two marks.

  report.py FILE [DOCUMENT]
"""

import json
import os
import sys

DOCUMENT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../docs/demo-model.md")
BEGIN, END = "<!-- figures -->\n", "<!-- end of figures -->\n"


def table(report):
    """Shares as percentages: what was asked, and recall by the distance between fact and question."""
    percent = lambda share: "%.0f %%" % (100 * share)
    lines = ["| asked | answered word for word |", "|---|---:|"]
    lines += ["| %s | %s |" % (name, percent(share)) for name, share in report.items() if not name.startswith("recall ")]
    distances = [(name.split(" ")[1], share) for name, share in report.items() if name.startswith("recall ")]
    lines += ["", "| tokens from the fact to its question | " + " | ".join(d for d, _ in distances) + " |", "|---" + "|---:" * len(distances) + "|"]
    lines += ["| recalled | " + " | ".join(percent(share) for _, share in distances) + " |"]
    return "\n".join(lines) + "\n"


def main():
    document = sys.argv[2] if len(sys.argv) > 2 else DOCUMENT
    report, text = json.load(open(sys.argv[1])), open(document).read()
    head, rest = text.split(BEGIN)
    with open(document, "w") as f:
        f.write(head + BEGIN + "\n" + table(report) + "\n" + END + rest.split(END)[1])


if __name__ == "__main__":
    main()
