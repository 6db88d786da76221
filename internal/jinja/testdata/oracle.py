"""Renders templates with Python's jinja2, set up as chat templates expect it.

Reads one JSON object {"source", "data", "now"} per line and answers each with
one line {"text"} or {"kind", "message"}.
"""

import datetime
import json
import sys
import warnings

import jinja2
from jinja2 import nodes
from jinja2.exceptions import TemplateError
from jinja2.ext import Extension
from jinja2.sandbox import ImmutableSandboxedEnvironment

warnings.simplefilter("ignore")


class Generation(Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        call = self.call_method("_pass", [])
        return nodes.CallBlock(call, [], [], body).set_lineno(line)

    def _pass(self, caller):
        return caller()


def raise_exception(message):
    raise TemplateError(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(
        x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


env = ImmutableSandboxedEnvironment(
    trim_blocks=True,
    lstrip_blocks=True,
    extensions=["jinja2.ext.loopcontrols", Generation],
)
env.filters["tojson"] = tojson
env.globals["raise_exception"] = raise_exception
# CPython formats and multiplies without limits: cases stay small instead.
sys.setrecursionlimit(3000)

for line in sys.stdin:
    case = json.loads(line)
    now = datetime.datetime.fromisoformat(case["now"])
    env.globals["strftime_now"] = lambda f: now.strftime(f)
    try:
        answer = {"text": env.from_string(case["source"]).render(**case["data"])}
    except Exception as e:  # whatever a template can do wrong
        answer = {"kind": type(e).__name__, "message": str(e)}
    # Lone surrogates cannot be written as UTF-8: escape everything.
    print(json.dumps(answer), flush=True)
