"""Runs quantized GGUF language models. See docs/python.md."""
from ._abi import VERSION as __version__
from ._chat import (Answer, Call, CallBegin, CallEnd, CallPiece, Chat, End, Event, Prompt, PromptProgress, Text,
                    Thinking, ToolResult, render_template)
from ._core import (ArgumentError, BusyError, CancelledError, ClosedError, DeviceError, DuetError, FileError, ForkError,
                    FormatError, FullError, InternalError, NanError, OutOfMemoryError, StateError, UnsupportedError)
from ._model import (SAMPLING, Device, File, Grammar, MemoryPlan, Model, ModelInfo, Sampler, SamplerParam, Tensor,
                     build_info, devices, numerics_version, sampler_params, version)
from ._schema import Tool, json_schema
from ._session import GenerateResult, Generation, Session, StopReason, TokenEvent

__all__ = [
    "Answer", "ArgumentError", "BusyError", "Call", "CallBegin", "CallEnd", "CallPiece", "CancelledError", "Chat",
    "ClosedError", "Device", "DeviceError", "DuetError", "End", "Event", "File", "FileError", "ForkError",
    "FormatError", "FullError", "GenerateResult", "Generation", "Grammar", "InternalError", "MemoryPlan", "Model",
    "ModelInfo", "NanError", "OutOfMemoryError", "Prompt", "PromptProgress", "SAMPLING", "Sampler", "SamplerParam",
    "Session", "StateError", "StopReason", "Tensor", "Text", "Thinking", "TokenEvent", "Tool", "ToolResult",
    "UnsupportedError", "__version__", "build_info", "devices", "json_schema", "numerics_version", "render_template",
    "sampler_params", "version",
]

# Errors are shown by the name that a program uses.
for _kind in [DuetError, *DuetError.__subclasses__(), *StateError.__subclasses__()]:
    _kind.__module__ = "duet"
