"""Converts docstrings to Markdown: roles become links, and indented examples become code blocks."""

import re
import textwrap

from griffe import Extension

ROLE = re.compile(r":(?:class|meth|func|attr|mod|data|exc):`~?([\w.]+)`")
# Several parameters that share a description.
NAMES = re.compile(r"^(    )(\w+(?:, \w+)+)(: .*\n(?:     .*\n)*)", re.M)
TABLE = re.compile(r"^(=+(?: +=+)+)\n(.*)\n\1\n((?:.*\n)+?)\1\n", re.M)
EXAMPLE = re.compile(r"^( *)(.*?):?:\n\n((?:\1    .*\n|\n)+)", re.M)


class Docstrings(Extension):
    def on_package(self, *, pkg, **_):
        # griffe calls `on_object` for the contents of a package, but not for the package itself.
        self.on_object(obj=pkg)

    def on_object(self, *, obj, **_):
        if obj.docstring:
            text = ROLE.sub(lambda role: link(obj, role[1]), obj.docstring.value) + "\n\n"
            text = NAMES.sub(lambda match: "".join(match[1] + name + match[3] for name in match[2].split(", ")), text)
            obj.docstring.value = EXAMPLE.sub(example, TABLE.sub(table, text)).rstrip()


def link(obj, name):
    """Returns a cross-reference to `name` from the docstring of `obj`. `name` is a member of the class of
    `obj`, or of the package."""
    scope = obj
    while scope is not None and not scope.is_module:
        if scope.is_class and name in scope.members:
            return f"[`{name}`][warpfeed.{scope.name}.{name}]"
        scope = scope.parent
    if scope.name in ("collate", "hf", "jax", "lightning", "ray") and name in scope.members and "." not in name:
        return f"[`{name}`][{scope.path}.{name}]"
    path = name if name.startswith("warpfeed.") else f"warpfeed.{name}"
    return f"[`{name}`][{path}]"


def example(result):
    indent, before, code = result.groups()
    code = textwrap.indent(textwrap.dedent(code).strip("\n"), indent)
    before = f"{indent}{before}:\n\n" if before else ""
    return f"{before}{indent}```python\n{code}\n{indent}```\n\n"


def table(result):
    """Converts a reStructuredText table, whose borders consist of `=`, to Markdown."""
    columns = [match.span() for match in re.finditer("=+", result[1])]
    columns[-1] = (columns[-1][0], None)
    head, *rows = [[line[slice(*span)].strip() for span in columns] for line in (result[2], *result[3].splitlines())]
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
