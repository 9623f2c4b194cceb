"""What a value that pydantic refuses should have been, in our words."""

from __future__ import annotations

from pydantic_core import ErrorDetails

NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"
"""What tenants, runs and options may be called."""

_MAPPING = "a mapping of keys to values"

_NEEDED = {
    **dict.fromkeys(("dict_type", "model_type", "model_attributes_type", "dataclass_type", "mapping_type"), _MAPPING),
    **dict.fromkeys(("list_type", "tuple_type"), "a list"),
    **dict.fromkeys(("string_type", "text"), "text"),
    **dict.fromkeys(("literal_error", "enum"), "{expected}"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "true or false"),
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "a whole number"),
    **dict.fromkeys(("float_type", "float_parsing"), "a number"),
    "finite_number": "a finite number",
    "greater_than": "more than {gt:,.12g}",
    "greater_than_equal": "at least {ge:,.12g}",
    "less_than": "less than {lt:,.12g}",
    "less_than_equal": "at most {le:,.12g}",
    "string_too_short": "text that is not empty",
    "string_too_long": "text of at most {max_length:,} characters",
    "too_short": "a list of {min_length:,} or more",
    "too_long": "a list of at most {max_length:,}",
}
"""By pydantic's type of the error, made of its context."""

_PATTERNS = {NAME: "a name of letters from A to Z or a to z, digits, '.', '_' and '-', begun by a letter or a digit,"}


def needed(error: ErrorDetails) -> str:
    """What is needed instead, to be put before *is needed*."""
    context = error.get("ctx", {})
    if error["type"] == "string_pattern_mismatch" and context["pattern"] in _PATTERNS:
        return _PATTERNS[context["pattern"]]
    if error["type"] in _NEEDED:
        return _NEEDED[error["type"]].format(**context)
    _, should, rest = error["msg"].partition(" should ")
    return rest.removeprefix("be ").removeprefix("have ") if should else error["msg"]
