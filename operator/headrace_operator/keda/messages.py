"""The messages of KEDA's ``externalscaler.proto``, made here instead of by a generator: they are few and do not change.

A test compares them with the published file.
"""

from __future__ import annotations

from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

PACKAGE: Final = "externalscaler"
SERVICE: Final = f"{PACKAGE}.ExternalScaler"

_Type = descriptor_pb2.FieldDescriptorProto
_MESSAGES: Final[dict[str, tuple[tuple[str, Any, str, bool], ...]]] = {
    "IsActiveResponse": (("result", _Type.TYPE_BOOL, "", False),),
    "GetMetricSpecResponse": (("metricSpecs", _Type.TYPE_MESSAGE, "MetricSpec", True),),
    "MetricSpec": (
        ("metricName", _Type.TYPE_STRING, "", False),
        ("targetSize", _Type.TYPE_INT64, "", False),
        ("targetSizeFloat", _Type.TYPE_DOUBLE, "", False),
    ),
    "GetMetricsRequest": (
        ("scaledObjectRef", _Type.TYPE_MESSAGE, "ScaledObjectRef", False),
        ("metricName", _Type.TYPE_STRING, "", False),
    ),
    "GetMetricsResponse": (("metricValues", _Type.TYPE_MESSAGE, "MetricValue", True),),
    "MetricValue": (
        ("metricName", _Type.TYPE_STRING, "", False),
        ("metricValue", _Type.TYPE_INT64, "", False),
        ("metricValueFloat", _Type.TYPE_DOUBLE, "", False),
    ),
    "ScaledObjectRef": (
        ("name", _Type.TYPE_STRING, "", False),
        ("namespace", _Type.TYPE_STRING, "", False),
        ("scalerMetadata", _Type.TYPE_MESSAGE, "ScaledObjectRef.ScalerMetadataEntry", True),
    ),
}
"""Message -> (field, type, message that it holds, repeated), in the order of the field numbers."""


def file_description() -> descriptor_pb2.FileDescriptorProto:
    """Return the file as protobuf describes one."""
    file = descriptor_pb2.FileDescriptorProto(name="externalscaler.proto", package=PACKAGE, syntax="proto3")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for number, (field, kind, holds, repeated) in enumerate(fields, 1):
            label = _Type.LABEL_REPEATED if repeated else _Type.LABEL_OPTIONAL
            described = message.field.add(name=field, number=number, type=kind, label=label)
            if holds:
                described.type_name = f".{PACKAGE}.{holds}"
        if name == "ScaledObjectRef":
            entry = message.nested_type.add(name="ScalerMetadataEntry")
            entry.options.map_entry = True
            for number, field in enumerate(("key", "value"), 1):
                entry.field.add(name=field, number=number, type=_Type.TYPE_STRING, label=_Type.LABEL_OPTIONAL)
    return file


# A pool of its own: in one process with generated classes of the same names nothing collides.
_POOL = descriptor_pool.DescriptorPool()
_POOL.Add(file_description())


def _message(name: str) -> Any:
    return message_factory.GetMessageClass(_POOL.FindMessageTypeByName(f"{PACKAGE}.{name}"))


ScaledObjectRef = _message("ScaledObjectRef")
IsActiveResponse = _message("IsActiveResponse")
MetricSpec = _message("MetricSpec")
GetMetricSpecResponse = _message("GetMetricSpecResponse")
GetMetricsRequest = _message("GetMetricsRequest")
MetricValue = _message("MetricValue")
GetMetricsResponse = _message("GetMetricsResponse")
