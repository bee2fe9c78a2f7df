"""Classes for protobuf messages that are described here and not by the package that writes them.

A log's writer is a large package (tensorboard brings NumPy and gRPC, wandb 50 MiB of modules), while a reader needs a
dozen fields.  The library ``protobuf`` does the reading; only numbers and types of these fields are ours to say.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_TYPES = {"double": 1, "float": 2, "int64": 3, "int32": 5, "bool": 8, "text": 9, "message": 11, "bytes": 12}


def message_types(package: str, messages: Mapping[str, Mapping[str, tuple[int, str]]]) -> dict[str, Any]:
    """Return a class for each message: ``{"Event": {"step": (2, "int64"), "value": (3, "Value*")}, "Value": ...}``.

    A type is one of double, float, int64, int32, bool, text, bytes or a message; with a star it is repeated.  Fields
    that are not named are passed over.  Fields have presence (``HasField``).  Raises ImportError without the library.
    """
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory  # noqa: PLC0415  an extra

    name = f"trainvitals.{package}"
    file = descriptor_pb2.FileDescriptorProto(name=f"{name}.proto", package=name, syntax="proto2")
    for message, fields in messages.items():
        described = file.message_type.add(name=message)
        for field, (number, kind) in fields.items():
            plain = kind.rstrip("*")
            added = described.field.add(name=field, number=number, label=3 if kind != plain else 1)
            added.type = _TYPES.get(plain, _TYPES["message"])
            if plain not in _TYPES:
                added.type_name = f".{name}.{plain}"
            elif plain not in {kind, "bytes"}:
                added.options.packed = True
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        message: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{name}.{message}"))
        for message in messages
    }
