"""Renders templates with Python's jinja2, set up as transformers does it.

Reads JSON from standard input: a list of {"template": text, "context": {...}}.
Writes a list of {"ok": true, "text": ...} or {"ok": false, "error": ...}.
"""

import datetime
import json
import sys

import jinja2
from jinja2.ext import Extension
from jinja2.sandbox import ImmutableSandboxedEnvironment


class Generation(Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        call = self.call_method("_same")
        return jinja2.nodes.CallBlock(call, [], [], body).set_lineno(line)

    def _same(self, caller):
        return caller()


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                      sort_keys=sort_keys)


def main():
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True,
        extensions=[Generation, "jinja2.ext.loopcontrols"])
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = lambda form: datetime.datetime.now().strftime(form)
    parsed = {}  # many cases share a template
    results = []
    for case in json.load(sys.stdin):
        try:
            source = case["template"]
            if source not in parsed:
                parsed[source] = environment.from_string(source)
            text = parsed[source].render(**case["context"])
            results.append({"ok": True, "text": text})
        except Exception as error:  # pylint: disable=broad-except
            results.append({"ok": False, "error": f"{type(error).__name__}: {error}"})
    json.dump(results, sys.stdout)


main()
