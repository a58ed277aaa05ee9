"""JSON schemas of Python's types, and JSON values as these types: for tools as functions and answers as objects."""
from __future__ import annotations

import dataclasses
import enum
import functools
import inspect
import json
import re
import types
import typing
from typing import Any, Callable, Dict, List, Literal, Mapping, Optional, Tuple, Union

_PLAIN: Dict[Any, str] = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}
_UNIONS: Tuple[Any, ...] = (Union, getattr(types, "UnionType", Union))  # "int | str" is of another kind from 3.10 on


def _is_pydantic(kind: Any) -> bool:
    return isinstance(kind, type) and hasattr(kind, "model_json_schema")


def json_schema(kind: Any) -> Dict[str, Any]:
    """The JSON schema of a type: str, int, float, bool, None, list, dict, tuple, Optional, Union, Literal, Enum,
    TypedDict, dataclasses, pydantic models, and Annotated[type, "description"]. A dict is a schema already.

    >>> from duet import json_schema
    >>> json_schema(list[int])
    {'type': 'array', 'items': {'type': 'integer'}}
    """
    if _is_pydantic(kind):
        return dict(kind.model_json_schema())
    definitions = _Definitions()
    return definitions.added_to(definitions.schema(kind))


class _Definitions:
    """What "$ref" names in a schema: parts of pydantic models, and types that hold themselves. They stand at the
    schema's root, wherever the type does."""

    def __init__(self) -> None:
        self._made: Dict[str, Any] = {}
        self._names: Dict[Any, str] = {}  # types that are referred to, or may be
        self._models: Dict[Any, Dict[str, Any]] = {}

    def added_to(self, root: Dict[str, Any]) -> Dict[str, Any]:
        return {**root, "$defs": self._made} if self._made else root

    def _name(self, kind: Any) -> str:
        taken = set(self._names.values())
        names = [kind.__name__, *(f"{kind.__name__}{i}" for i in range(2, len(taken) + 3))]
        self._names[kind] = name = str(next(name for name in names if name not in taken))
        return name

    def _pydantic(self, kind: Any) -> Dict[str, Any]:
        if kind not in self._models:
            name = self._name(kind)
            made = dict(kind.model_json_schema(ref_template=f"#/$defs/{name}.{{model}}"))
            self._made.update({f"{name}.{part}": schema for part, schema in made.pop("$defs", {}).items()})
            self._models[kind] = made
        return dict(self._models[kind])

    def _object(self, kind: Any, fields: Dict[str, Tuple[Any, bool]]) -> Dict[str, Any]:
        if kind in self._names:  # it is a part of itself
            self._made.setdefault(self._names[kind], None)
            return {"$ref": f"#/$defs/{self._names[kind]}"}
        name = self._name(kind)
        properties = {field: self.schema(hint) for field, (hint, _) in fields.items()}
        required = [field for field, (_, is_required) in fields.items() if is_required]
        made = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
        if name not in self._made:
            del self._names[kind]
            return made
        self._made[name] = made
        return {"$ref": f"#/$defs/{name}"}

    def schema(self, kind: Any) -> Dict[str, Any]:
        """The schema of a part."""
        origin, parts = typing.get_origin(kind), typing.get_args(kind)
        if isinstance(kind, Mapping):
            return dict(kind)
        if kind in (Any, inspect.Parameter.empty):
            return {}
        if getattr(origin, "_name", "") in ("Required", "NotRequired"):
            return self.schema(parts[0])
        if hasattr(kind, "__metadata__"):  # Annotated
            made = self.schema(kind.__origin__)
            notes = [note for note in kind.__metadata__ if isinstance(note, str)]
            return {**made, "description": notes[0]} if notes else made
        if origin is Literal:
            return {"enum": [_json_of(part) for part in parts]}
        if origin in _UNIONS:
            return {"anyOf": [self.schema(part) for part in parts]}
        if getattr(type(kind), "__hash__", None) is None:
            raise _no_type(kind)
        if kind in _PLAIN or kind is None:
            return {"type": _PLAIN[type(None) if kind is None else kind]}
        if _is_pydantic(kind):
            return self._pydantic(kind)
        if isinstance(kind, type) and issubclass(kind, enum.Enum):
            return {"enum": [member.value for member in kind]}
        if kind is tuple or origin is tuple:
            if len(parts) == 2 and parts[1] is Ellipsis:
                return {"type": "array", "items": self.schema(parts[0])}
            fixed = [self.schema(part) for part in parts]
            made = {"type": "array"}
            return {**made, "prefixItems": fixed, "items": False, "minItems": len(fixed)} if parts else made
        if kind in (list, set) or origin in (list, set):
            return {"type": "array", **({"items": self.schema(parts[0])} if parts else {})}
        if kind is dict or origin is dict:
            if parts and parts[0] is not str:
                raise TypeError(f"JSON schema: want names of type str in a dict, got {parts[0]}")
            return {"type": "object", "additionalProperties": self.schema(parts[1]) if parts else True}
        if (fields := _fields(kind)) is not None:
            return self._object(kind, fields)
        raise _no_type(kind)


def _no_type(kind: Any) -> TypeError:
    return TypeError(f"JSON schema: want a type of JSON values (str, list[int], a dataclass, ...), got {kind!r}")


def _fields(kind: Any) -> Optional[Dict[str, Tuple[Any, bool]]]:
    """Of a dataclass or a TypedDict its fields: type, and whether the field is required."""
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        hints = typing.get_type_hints(kind, include_extras=True)
        empty = dataclasses.MISSING
        return {f.name: (hints[f.name], f.default is empty and f.default_factory is empty)
                for f in dataclasses.fields(kind) if f.init}
    if hasattr(kind, "__required_keys__"):
        hints = typing.get_type_hints(kind, include_extras=True)
        # where annotations are texts, __required_keys__ does not see what is written around a type
        told = {name: getattr(typing.get_origin(hint), "_name", "") for name, hint in hints.items()}
        return {name: (hint, told[name] != "NotRequired" and (told[name] == "Required" or name in kind.__required_keys__))
                for name, hint in hints.items()}
    return None


def _json_of(part: Any) -> Any:
    """A part of a Literal as JSON has it."""
    return part.value if isinstance(part, enum.Enum) else part


def _is_same(value: Any, part: Any) -> bool:
    """Whether a JSON value is a part of a Literal. Python's 1 and True are equal, those of JSON are not."""
    return bool(value == _json_of(part)) and isinstance(value, bool) == isinstance(_json_of(part), bool)


def convert(value: Any, kind: Any) -> Any:
    """A JSON value as the type that its schema was made of."""
    if hasattr(kind, "__metadata__"):
        return convert(value, kind.__origin__)
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if getattr(origin, "_name", "") in ("Required", "NotRequired"):
        return convert(value, parts[0])
    if _is_pydantic(kind):
        return kind.model_validate(value)
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return kind(value)
    if origin is Literal:
        return next((part for part in parts if _is_same(value, part)), value)
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if origin in _UNIONS:
        return convert(value, next((part for part in parts if _fits(value, part)), Any))
    if kind is tuple or origin is tuple:
        if parts and parts[-1] is not Ellipsis:
            return tuple(convert(v, part) for v, part in zip(value, parts))
        return tuple(convert(v, parts[0]) if parts else v for v in value)
    if origin in (list, set):
        return origin(convert(v, parts[0] if parts else Any) for v in value)
    if kind is set:
        return set(value)
    if origin is dict and parts:
        return {name: convert(v, parts[1]) for name, v in value.items()}
    fields = _fields(kind)
    if fields is not None and isinstance(value, Mapping):
        made = {name: convert(v, fields[name][0]) for name, v in value.items() if name in fields}
        return kind(**made)
    return value


def _fits(value: Any, kind: Any) -> bool:
    """Whether a value may be of the type: enough to choose a part of a Union."""
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if hasattr(kind, "__metadata__"):
        return _fits(value, kind.__origin__)
    if kind is type(None) or kind is None:
        return value is None
    if kind in (str, bool):
        return isinstance(value, kind)
    if kind in (int, float):
        return isinstance(value, (int, float) if kind is float else int) and not isinstance(value, bool)
    if getattr(origin, "_name", "") in ("Required", "NotRequired"):
        return _fits(value, parts[0])
    if origin in _UNIONS:
        return any(_fits(value, part) for part in parts)
    if origin is Literal:
        return any(_is_same(value, part) for part in parts)
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return any(_is_same(value, member) for member in kind)
    if origin is tuple and parts and parts[-1] is not Ellipsis:
        return isinstance(value, list) and len(value) == len(parts) and all(map(_fits, value, parts))
    if (origin or kind) in (list, tuple, set):
        return isinstance(value, list) and (not parts or all(_fits(v, parts[0]) for v in value))
    if _is_pydantic(kind):
        try:
            kind.model_validate(value)
        except ValueError:
            return False
        return True
    if (fields := _fields(kind)) is not None:
        return (isinstance(value, Mapping) and all(name in value for name, (_, needed) in fields.items() if needed)
                and all(name in fields and _fits(v, fields[name][0]) for name, v in value.items()))
    if (origin or kind) is dict:
        return isinstance(value, Mapping) and (not parts or all(_fits(v, parts[1]) for v in value.values()))
    return True


def _hints(function: Any) -> Dict[str, Any]:
    """The types of a function's parameters. What it returns may have a name that only type checkers know."""
    try:
        return typing.get_type_hints(function, include_extras=True)
    except NameError:
        told: Any = types.SimpleNamespace(__annotations__={**function.__annotations__, "return": Any})
        return typing.get_type_hints(told, inspect.unwrap(function).__globals__, include_extras=True)


class Tool:
    """A function that a model may call. Its name, signature and docstring make the description that the model reads;
    lines "name: text" of the docstring, or Annotated types, describe the parameters.

    >>> import duet
    >>> def weather(city: str, days: int = 1) -> str:
    ...     '''Tells the weather.
    ...
    ...     city: the name of a city
    ...     '''
    ...     return f"{city}: sunny for {days} day(s)"
    >>> tool = duet.Tool(weather)
    >>> tool.definition["function"]["parameters"]["required"]
    ['city']
    >>> tool.call({"city": "Paris"})
    'Paris: sunny for 1 day(s)'
    """

    def __init__(self, function: Callable[..., Any], *, name: Optional[str] = None,
                 description: Optional[str] = None) -> None:
        self.function = function
        told_by: Any = function
        while isinstance(told_by, functools.partial):
            told_by = told_by.func
        self.name: str = name or str(getattr(told_by, "__name__", type(told_by).__name__))
        doc = inspect.getdoc(told_by) or ""
        target = told_by if inspect.isroutine(told_by) else type(told_by).__call__
        hints = _hints(target)
        self._kinds: Dict[str, Any] = {}
        properties: Dict[str, Any] = {}
        required: List[str] = []
        definitions = _Definitions()
        for parameter in inspect.signature(function).parameters.values():
            if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
                raise TypeError(f"tool {self.name}: want parameters with names, got {parameter}")
            kind = hints.get(parameter.name, Any)
            self._kinds[parameter.name] = kind
            properties[parameter.name] = schema = definitions.schema(kind)
            told = re.search(rf"^\s*{parameter.name}\s*(?:\([^)]*\))?:[ \t]*(\S.*)$", doc, re.M)
            if told and "description" not in schema:
                schema["description"] = told[1].strip()
            if parameter.default is parameter.empty:
                required.append(parameter.name)
        self.definition: Dict[str, Any] = {
            "type": "function",
            "function": {
                "name": self.name,
                "description": description or doc.split("\n\n")[0].replace("\n", " "),
                "parameters": definitions.added_to({"type": "object", "properties": properties, "required": required,
                                                    "additionalProperties": False}),
            },
        }

    def arguments(self, given: Mapping[str, Any]) -> Dict[str, Any]:
        """The arguments of a call as the types of the signature."""
        return {name: convert(value, self._kinds.get(name, Any)) for name, value in given.items()}

    def call(self, given: Mapping[str, Any]) -> Any:
        """Calls the function with the arguments of a call."""
        return self.function(**self.arguments(given))


def result_text(result: Any) -> str:
    """What a tool returned, as the content of a message."""
    if isinstance(result, str):
        return result
    if hasattr(result, "model_dump_json"):
        return str(result.model_dump_json())
    return json.dumps(result, ensure_ascii=False, default=_plain)


def _plain(value: Any) -> Any:
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    if isinstance(value, enum.Enum):
        return value.value
    return list(value) if isinstance(value, (set, frozenset)) else str(value)
