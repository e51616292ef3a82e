"""Pages made of the packaged templates: everything that comes from outside is escaped, a value that a template misses is an error."""

from typing import Any

from paceline.data.tables import template

__all__ = ["rendered"]


def rendered(name: str, /, **values: Any) -> str:
    """The template `name` filled with `values`."""
    from jinja2 import Environment, FunctionLoader, StrictUndefined, select_autoescape  # heavy, and only a page needs it

    environment = Environment(
        loader=FunctionLoader(template),
        autoescape=select_autoescape(default=True, default_for_string=True),
        undefined=StrictUndefined,
    )
    return environment.get_template(name).render(values)
