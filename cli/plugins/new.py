"""``turnout plugins new``: writes a complete package from templates."""

from __future__ import annotations

import keyword
import re
from importlib.resources import files
from pathlib import Path
from string import Template

import click

from turnout.cli.options.output_file import writing
from turnout.cli.plugins.skeletons import SKELETONS, Skeleton
from turnout.core.errors import did_you_mean
from turnout.core.registry.hookspecs import HOOK_API_VERSION
from turnout.core.registry.registry import Registry

__all__ = ["new_plugin", "package_files", "rendered"]

_SHORT_KINDS = {"eviction": "kv_eviction", "predictor": "length_predictor", "quantizer": "quantization"}
_SLOW = "- `pytest -m slow` serves the embedded model with the plugin.\n"
NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")


def _kind_named(ctx: click.Context, parameter: click.Parameter, value: str) -> str:
    """The kind that ``--kind`` names: dashes are read as underscores, and three kinds have a short name."""
    name = value.replace("-", "_")
    kind = _SHORT_KINDS.get(name, name)
    if kind not in SKELETONS:
        known = f"{', '.join(SKELETONS)}{did_you_mean(kind, SKELETONS)}"
        raise click.BadParameter(f"no kind of plugin is called {value!r}; known: {known}")
    return kind


@click.command(name="new")
@click.argument("name")
@click.option(
    "--kind",
    required=True,
    metavar="KIND",
    callback=_kind_named,
    help=f"Kind of the plugin: {', '.join(SKELETONS)}.",
)
@click.option(
    "--folder",
    type=click.Path(path_type=Path),
    default=Path("."),
    show_default="the current one",
    help="Folder in which to make the package's own folder.",
)
def new_plugin(name: str, kind: str, folder: Path) -> None:
    """Write an installable package with a plugin called NAME and its tests.

    NAME has small letters, digits and dashes. Existing files are never overwritten.
    """
    name = name.removeprefix("turnout-")
    if not NAME.fullmatch(name):
        raise click.BadParameter(
            f"{name!r} is not a name; use small letters, digits and dashes: my-{kind.replace('_', '-')}"
        )
    _check_free(name, SKELETONS[kind])
    root = folder / f"turnout-{name}"
    if root.exists():
        raise click.UsageError(f"{root} exists already and is not overwritten; choose another name")
    contents = package_files(name, kind)
    for path, text in contents.items():
        file = root / path
        with writing(file):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
    click.echo(_report(root, list(contents), SKELETONS[kind], name))


def _check_free(name: str, skeleton: Skeleton) -> None:
    """Raises UsageError if another package has a plugin of that kind and name: neither could be used."""
    for entry in Registry.load().entries():
        if (entry.kind, entry.name) == (skeleton.kind, name) and entry.distribution != f"turnout-{name}":
            raise click.UsageError(
                f"{entry.origin} has {skeleton.article} {skeleton.noun} called {name!r} already; "
                "choose another name"
            )


def package_files(name: str, kind: str) -> dict[str, str]:
    """Returns the files of a package for a plugin of that name, by path."""
    module = _module(name)
    return {
        "pyproject.toml": rendered("pyproject.toml", name, kind),
        "README.md": rendered("README.md", name, kind),
        f"{module}.py": rendered(f"{kind}.py", name, kind),
        f"tests/test_{module}.py": rendered("test.py", name, kind),
        ".github/workflows/tests.yml": rendered("workflow.yml", name, kind),
    }


def rendered(template: str, name: str, kind: str) -> str:
    """Returns a template, filled in for a plugin of that name and kind."""
    return Template(_template(template)).substitute(_values(name, SKELETONS[kind]))


def _template(name: str) -> str:
    return files("turnout.cli.plugins").joinpath("templates", f"{name}.txt").read_text(encoding="utf-8")


def _values(name: str, skeleton: Skeleton) -> dict[str, str]:
    def named(text: str) -> str:
        return Template(text).substitute(name=name)

    return {
        "name": name,
        "kind": skeleton.kind,
        "distribution": f"turnout-{name}",
        "description": f"{skeleton.article.capitalize()} {skeleton.noun} for Turnout",
        "module": _module(name),
        "class_name": _class_name(name, skeleton.kind),
        "noun": skeleton.noun,
        "suite": skeleton.suite,
        "claims": "\n    ".join(map(named, skeleton.claims)),
        "use": named(skeleton.use),
        "slow": _SLOW if skeleton.serves else "",
        "checked": skeleton.checked,
        "hook_api": str(HOOK_API_VERSION),
    }


def _class_name(name: str, kind: str) -> str:
    """The name in capitals, with the kind behind it where the plugin's code means something else by it."""
    words = {*re.findall(r"\w+", _template(f"{kind}.py") + _template("test.py")), *keyword.kwlist}
    made = _in_capitals(name)
    return made + _in_capitals(kind.replace("_", "-")) if made in words else made


def _in_capitals(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("-"))


def _module(name: str) -> str:
    return f"turnout_{name.replace('-', '_')}"


def _report(root: Path, paths: list[str], skeleton: Skeleton, name: str) -> str:
    listed = "\n".join(f"  {path}" for path in paths)
    use = Template(skeleton.use).substitute(name=name)
    return (
        f"{root} is {skeleton.article} {skeleton.noun}:\n{listed}\n\nNext:\n  pip install -e {root}\n  {use}"
    )
